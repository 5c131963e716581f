"""Success classifiers: reward models that predict the probability of success of each frame."""

import dataclasses
import functools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, TypedDict, Unpack, get_args

import torch
from torch import Tensor, nn

from rewardlab.config.schema import DataConfig, ScoringBackend, ThresholdConfig
from rewardlab.data import read_episodes
from rewardlab.data.frames import FrameTable
from rewardlab.data.stored_frames import validation_logits
from rewardlab.data.used_episodes import UsedEpisodes, split_frames
from rewardlab.devices import forked_random_numbers
from rewardlab.errors import ConfigError, DataError
from rewardlab.figures.metrics import FrameScores
from rewardlab.figures.trust import TrustFigures, assess
from rewardlab.frame_sizes import FrameSize, Resize
from rewardlab.keys import DEFAULT_CAMERA
from rewardlab.models.classifiers import ImageClassifier, average_pool_classifier, spatial_classifier
from rewardlab.models.image_preprocessor import ImageArray, ImagePreprocessor
from rewardlab.models.inference import InferenceBackend, InferenceNetwork, success_probability
from rewardlab.models.onnx_encoder import onnx_installed
from rewardlab.models.precision import Precision, compute_dtype
from rewardlab.models.resnet import Norm, Padding
from rewardlab.models.weights import check_weights
from rewardlab.registry import unknown_name
from rewardlab.rewards.base import (
    BaseRewardModel,
    LooksAt,
    checked_scores,
    register_reward_model,
    with_rewards,
)
from rewardlab.rewards.checkpoint import write_checkpoint
from rewardlab.rewards.labelled_frames import LabelledFrames
from rewardlab.rewards.pretrained_encoder import read_pretrained_encoder
from rewardlab.rewards.trained_tasks import Tasks
from rewardlab.rewards.zoo.transitions import read_images, read_labels, read_unsure

MINI_BATCH = 256


class TrainingOptions(TypedDict, total=False):
    """Settings of `train()`, which trains on collected frames beside a policy; not those of `rewardlab.training`."""

    learning_rate: float  # 1e-4
    batch_size: int  # 32; half of each batch are successes
    update_per_collect: int  # 50 batches per call of `train()`
    clear_buffer_per_iters: int  # 1
    seed: int  # 0


class SuccessClassifier(BaseRewardModel):
    """A reward model over frames: a network, a temperature that calibrates it, and a threshold that decides success.

    Validation, scoring of files and RL all call `probabilities`, so that a frame has the same probability everywhere,
    whatever batch it is in.
    """

    looks_at: ClassVar[LooksAt] = "frames"
    gives_probability: ClassVar[bool] = True

    def __init__(
        self,
        network: ImageClassifier,
        *,
        precision: Precision = "fp32",
        learning_rate: float = 1e-4,
        batch_size: int = 32,
        update_per_collect: int = 50,
        clear_buffer_per_iters: int = 1,
        seed: int = 0,
    ) -> None:
        if precision not in get_args(Precision):
            raise ConfigError(unknown_name("precision", str(precision), get_args(Precision)))
        self.network = network.eval()
        self.precision = precision
        self.learning_rate, self.batch_size, self.seed = learning_rate, batch_size, seed
        self.update_per_collect, self.clear_buffer_per_iters = update_per_collect, clear_buffer_per_iters
        self.threshold, self.temperature = 0.5, 1.0
        self.class_prior: float | None = None  # fraction of successes in the training data
        self.metrics: dict[str, Any] = {}
        self.notes: list[str] = []
        self.used_episodes: UsedEpisodes | None = None  # for training and validation; None: not recorded
        self.tasks: Tasks | None = None  # of these episodes, by name; likewise
        self.updates = 0
        self._frames = LabelledFrames(seed)
        self._held_out: FrameTable | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._backend: ScoringBackend = "torch"
        self._inference: InferenceNetwork | None = None
        self._inference_key: tuple[object, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        # Tensors in oneDNN's layout and ONNX Runtime's sessions cannot be copied or pickled, and neither can log files.
        return {**vars(self), "_inference": None, "tb_logger": None}

    def _common_settings(self) -> dict[str, Any]:
        named = {name: getattr(self, name) for name in ("arch", "hidden_dim", "width", "norm", "precision")}
        prepare = self.network.preprocess
        images = {"image_keys": list(self.image_keys), "image_size": list(self.image_size)}
        recorded = {camera: list(size) for camera, size in prepare.frame_sizes.items()}
        cropped = {"crop": {camera: list(prepare.box(camera)) for camera in prepare.crop}} if prepare.crop else {}
        return {**named, **images, "frame_sizes": recorded, "normalize": prepare.normalize, **cropped}

    @property
    def image_keys(self) -> tuple[str, ...]:
        return self.network.preprocess.image_keys

    @property
    def image_size(self) -> tuple[int, int, int]:
        return self.network.preprocess.image_size

    @property
    def frame_sizes(self) -> dict[str, FrameSize]:
        """Return the size, by camera, that frames must have; see `ImagePreprocessor.frame_size`."""
        return {camera: self.network.preprocess.frame_size(camera) for camera in self.image_keys}

    def set_frame_sizes(self, recorded: Mapping[str, tuple[int, int]]) -> None:
        """Set the height and width, by camera, of the frames that the model is trained on; a checkpoint stores them."""
        self.network.preprocess = dataclasses.replace(self.network.preprocess, frame_sizes=dict(recorded))

    @property
    def device(self) -> torch.device:
        return self.network.encoder.conv1.weight.device

    def parameters(self) -> Iterator[nn.Parameter]:
        return self.network.parameters()

    def __call__(self, observation: Any) -> Tensor:
        """Return the network's logits [B] with gradients; use `probabilities` to score frames."""
        return self.network(read_images(observation))

    def probabilities(self, observation: Any) -> Tensor:
        """Return the calibrated probability of success of each frame, as float32 on the CPU.

        `observation` is a Batch, a dictionary with images, or the images of the only camera: [..., H, W, 3] or
        [..., 3, H, W]. The result has the shape of the leading axes.
        """
        logits = self.logits(observation)
        return success_probability(logits.flatten(), self.temperature).reshape(logits.shape)

    def logits(self, observation: Any) -> Tensor:
        """Return the uncalibrated logit of each frame."""
        cameras = self.network.preprocess.select(read_images(observation))
        leading = {key: tuple(array.shape[:-3]) for key, array in cameras.items()}
        shape = leading[self.image_keys[0]]
        if not shape or set(leading.values()) != {shape}:
            raise DataError(f"expected batches of images of the same length; found {_shapes(cameras)}")
        flat = {key: array.reshape(-1, *array.shape[-3:]) for key, array in cameras.items()}
        network = self._inference_network()
        scores = torch.empty(len(flat[self.image_keys[0]]))
        for start in range(0, len(scores), MINI_BATCH):
            part = {key: array[start : start + MINI_BATCH] for key, array in flat.items()}
            scores[start : start + MINI_BATCH] = network(part)
        return scores.reshape(shape)

    def _inference_network(self) -> InferenceNetwork:
        self._check_ready()
        # Optimizers and load_state_dict raise the version of a tensor; only writes through `.data` are not noticed.
        tensors = [*self.network.parameters(), *self.network.buffers()]
        key = (
            self.precision,
            self._backend,
            self.network.preprocess,
            *((tensor.data_ptr(), tensor._version) for tensor in tensors),
        )
        if self._inference is None or key != self._inference_key:
            dtype = compute_dtype(self._scoring_precision, self.device)
            self._inference = InferenceNetwork(self.network, dtype, self._choose_backend(self._backend))
            self._inference_key = key
        return self._inference

    @property
    def _scoring_precision(self) -> Precision:
        # With weights that are packed for it, a CPU scores frames faster in fp32, even one whose bf16 convolutions are
        # 1.7 times as fast: 15 against 22 ms for 32 frames through ResNet-10.
        return "fp32" if self.precision == "auto" and self.device.type == "cpu" else self.precision

    def use_backend(self, backend: ScoringBackend) -> None:
        """Choose the library that scores frames, as `reward.backend` of a config does; training always uses torch."""
        self._choose_backend(backend)
        self._backend = backend

    def _choose_backend(self, backend: ScoringBackend) -> InferenceBackend:
        if backend not in get_args(ScoringBackend):
            raise ConfigError(unknown_name("reward.backend", str(backend), get_args(ScoringBackend)))
        fits = self.device.type == "cpu" and self._scoring_precision == "fp32"
        if backend == "auto":
            return "onnx" if fits and onnx_installed() else "torch"
        if backend == "onnx" and not onnx_installed():
            raise ConfigError(
                "reward.backend: found onnx, but ONNX Runtime is not installed: pip install 'rewardlab[onnx]', or set "
                "reward.backend to torch"
            )
        if backend == "onnx" and not fits:
            raise ConfigError(
                f"reward.backend: found onnx, which computes on the CPU in fp32; '{self.model_type}' is on "
                f"{self.device} with precision {self.precision}: set reward.backend to auto or torch, or the device to "
                "cpu (cluster.device, --device)"
            )
        return backend

    def _check_ready(self) -> None:
        """Raise an error if the pretrained weights of the config have not been read yet."""

    def estimate(self, data: Any) -> Any:
        return with_rewards(data, self.probabilities(data))

    def score(self, data: Any) -> Tensor:
        return checked_scores(self.probabilities(data))

    def first_camera(self, data: Any) -> ImageArray:
        """Return what the model looks at of the frames [B, ...] of its first camera."""
        images = self.network.preprocess.select(read_images(data))[self.image_keys[0]]
        return self.seen(images.reshape(-1, *images.shape[-3:]))

    def seen(self, images: ImageArray) -> ImageArray:
        """Return what the model looks at of images [B, ...] of its first camera: its crop, if it has one."""
        return self.network.preprocess.cut({self.image_keys[0]: images})[self.image_keys[0]]

    def collect_data(self, data: Any) -> None:
        """Add frames with their `success` labels."""
        self._collect(data)

    def load_expert_data(self, data: Any) -> None:
        """Add labelled frames that `clear_data` does not drop."""
        self._collect(data, keep=True)

    def _collect(self, data: Any, *, keep: bool = False) -> None:
        images = self.network.preprocess.select(read_images(data))
        self._frames.add(images, read_labels(data), read_unsure(data), keep=keep)

    def clear_data(self, iter: int) -> None:
        if self.time_to_clear(iter):
            self._frames.clear()

    def prepare_cotraining(self, data: DataConfig, seed: int) -> None:
        """Find the episodes that the model was trained and validated on.

        Training continues on them too, so that they are not forgotten, and the threshold is chosen again on the
        held-out ones whenever the weights change.
        """
        if self.used_episodes is None:
            if not data.paths:
                raise ConfigError(
                    f"reward.cotrain: the checkpoint of '{self.model_type}' does not record the episodes that it was "
                    "trained and validated on (older versions did not); choosing its threshold again needs them. "
                    "Train it again with `rewardlab train-reward`, or set data.data_path to labelled episodes"
                )
            train, self._held_out = split_frames(read_episodes(*data.paths), data, seed)
            self.record_episodes(train, self._held_out, data, seed)
        else:
            train, self._held_out = self.used_episodes.find(data.paths)
        self._frames.replay(train, self.image_keys)

    def record_episodes(self, train: FrameTable, held_out: FrameTable, data: DataConfig, seed: int) -> None:
        """Record the episodes that the model is trained and validated on, and their tasks; a checkpoint stores both."""
        self.used_episodes = UsedEpisodes.record(train, held_out, data, seed)
        self.tasks = tuple(sorted({episode.facts.task for episode in train.episodes}))

    def calibrate(self, held_out: FrameTable, target_fpr: float, seed: int = 0) -> tuple[FrameScores, TrustFigures]:
        """Choose the temperature and the threshold on held-out frames; return their scores and the model's metrics."""
        logits = validation_logits(self.logits, held_out, self.image_keys)
        scores = FrameScores(held_out.episode, held_out.time, held_out.label, logits, held_out.episode_names())
        figures = assess(scores, target_fpr, seed=seed)
        self.threshold, self.temperature = figures.threshold, figures.temperature
        self.class_prior, self.metrics = figures.class_prior, figures.to_json()
        return scores, figures

    def can_train(self) -> bool:
        return self._frames.has_both_classes

    def train(self) -> None:
        """Make `update_per_collect` gradient steps on balanced batches of collected and recorded frames.

        If there are held-out episodes, calibrate the model again.
        """
        self._check_ready()
        self._frames.check_trainable()
        optimizer = self._get_optimizer()
        dtype = compute_dtype(self.precision, self.device)
        self.network.train()
        try:
            # Dropout draws from torch's global generator: seeded here, so that a resumed run draws the same.
            with forked_random_numbers(self.device):
                torch.manual_seed(self.seed + self.updates)
                for _ in range(self.update_per_collect):
                    images, labels = self._frames.balanced_batch(self.batch_size)
                    with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
                        loss = self.network.learn(images, labels)
                    if not torch.isfinite(loss):
                        raise DataError(
                            f"the loss is {loss.item()} at update {self.updates}: training stopped before this update; "
                            "lower the learning_rate of the reward model"
                        )
                    optimizer.zero_grad(set_to_none=True)
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
                    if self.tb_logger is not None:
                        self.tb_logger.add_scalar("reward_model/loss", loss.item(), self.updates)
                    self.updates += 1
        finally:
            self.network.eval()
        if self._held_out is not None:
            self.calibrate(self._held_out, self.metrics.get("target_fpr", ThresholdConfig().target_fpr))

    def _get_optimizer(self) -> torch.optim.Optimizer:
        if self._optimizer is None:
            trainable = [parameter for parameter in self.parameters() if parameter.requires_grad]
            self._optimizer = torch.optim.AdamW(trainable, lr=self.learning_rate)
        return self._optimizer

    def facts(self) -> dict[str, Any]:
        return {
            "threshold": self.threshold,
            "temperature": self.temperature,
            "class_prior": self.class_prior,
            "metrics": self.metrics,
            "notes": self.notes,
            "used_episodes": None if self.used_episodes is None else vars(self.used_episodes),
            "tasks": self.tasks,
        }

    def state_dict(self) -> dict[str, Tensor]:
        """Return the network's weights and running statistics, and the calibration."""
        calibration = {"threshold": self.threshold, "temperature": self.temperature}
        numbers = {f"calibration.{key}": torch.tensor(value, dtype=torch.float64) for key, value in calibration.items()}
        return {**self.network.state_dict(), **numbers}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load a `state_dict`; it may be without the calibration, as in the files of training scripts."""
        weights = {name: value for name, value in state.items() if not name.startswith("calibration.")}
        check_weights(self.network.state_dict(), weights, "state_dict")
        self.network.load_state_dict(weights)
        self.threshold = float(state.get("calibration.threshold", self.threshold))
        self.temperature = float(state.get("calibration.temperature", self.temperature))

    def training_state(self) -> dict[str, Any]:
        return {
            "weights": self.state_dict(),
            "optimizer": None if self._optimizer is None else self._optimizer.state_dict(),
            "frames": self._frames.state_dict(),
            "updates": self.updates,
            "class_prior": self.class_prior,
            "metrics": self.metrics,
        }

    def load_training_state(self, state: Mapping[str, Any]) -> None:
        self.load_state_dict(state["weights"])
        self._optimizer = None
        if state["optimizer"] is not None:
            self._get_optimizer().load_state_dict(state["optimizer"])
        self._frames.load_state_dict(state["frames"])
        self.updates, self.class_prior, self.metrics = state["updates"], state["class_prior"], dict(state["metrics"])

    def save(self, path: str | Path, *, card: str | None = None, pictures: Mapping[str, bytes] | None = None) -> Path:
        return write_checkpoint(Path(path), self.describe(), self.network.state_dict(), card=card, pictures=pictures)


def _shapes(cameras: Mapping[str, ImageArray]) -> str:
    return ", ".join(f"{key} {list(array.shape)}" for key, array in cameras.items())


@register_reward_model("resnet")
@register_reward_model("resnet_reward")
class ResNetRewardModel(SuccessClassifier):
    """A success classifier: ResNet, average pooling, Linear, ReLU, Dropout, Linear. All cameras share the ResNet."""

    def __init__(
        self,
        arch: str = "resnet18",
        hidden_dim: int = 256,
        dropout: float = 0.1,
        image_size: Sequence[int] = (3, 128, 128),
        image_keys: Sequence[str] = (DEFAULT_CAMERA,),
        normalize: bool = True,
        precision: Precision = "fp32",
        width: int = 64,
        norm: Norm = "batch",
        frame_sizes: Mapping[str, Sequence[int]] | None = None,
        resize: Resize = "reduce",
        crop: Mapping[str, Sequence[float]] | None = None,
        **training: Unpack[TrainingOptions],
    ) -> None:
        self.arch, self.hidden_dim, self.dropout, self.width, self.norm = arch, hidden_dim, dropout, width, norm
        prepare = _preprocessor(image_keys, image_size, normalize, frame_sizes, resize, crop)
        network = average_pool_classifier(
            prepare, arch=arch, hidden_dim=hidden_dim, dropout=dropout, width=width, norm=norm
        )
        super().__init__(network, precision=precision, **training)

    def settings(self) -> dict[str, Any]:
        return {"dropout": self.dropout, **self._common_settings()}


@register_reward_model("binary_classifier")
class BinaryRewardClassifier(SuccessClassifier):
    """The success classifier of SERL: ResNet-10, SpatialLearnedEmbeddings, Linear, LayerNorm, Tanh, Linear.

    `use_pretrain` is the layout of the pooling, as in SERL and HIL-SERL: True keeps the encoder's feature map, False
    averages it to one position first. Weights are read from `pretrained_encoder_path` only; without it the encoder is
    initialised at random. `freeze_encoder=None` freezes the encoder if it is pretrained, and only then.
    """

    def __init__(
        self,
        image_keys: Sequence[str] = (DEFAULT_CAMERA,),
        image_size: Sequence[int] = (3, 64, 64),
        hidden_dim: int = 256,
        num_spatial_blocks: int = 8,
        pretrained_encoder_path: str | None = None,
        use_pretrain: bool = True,
        freeze_encoder: bool | None = None,
        normalize: bool = True,
        precision: Precision = "fp32",
        arch: str = "resnet10",
        width: int = 64,
        norm: Norm = "batch",
        padding: Padding = "symmetric",
        frame_sizes: Mapping[str, Sequence[int]] | None = None,
        resize: Resize = "reduce",
        crop: Mapping[str, Sequence[float]] | None = None,
        **training: Unpack[TrainingOptions],
    ) -> None:
        if pretrained_encoder_path is not None and not use_pretrain:
            raise ConfigError(
                f"use_pretrain: found false, but pretrained_encoder_path is '{pretrained_encoder_path}': remove one"
            )
        if freeze_encoder and pretrained_encoder_path is None:
            warnings.warn(
                "freeze_encoder without pretrained_encoder_path keeps the encoder at random weights: set "
                "pretrained_encoder_path too, or remove freeze_encoder",
                stacklevel=2,
            )
        if freeze_encoder is None:
            freeze_encoder = pretrained_encoder_path is not None
        self.arch, self.hidden_dim, self.num_spatial_blocks = arch, hidden_dim, num_spatial_blocks
        self.use_pretrain, self.width, self.norm, self.padding = use_pretrain, width, norm, padding
        self.pretrained_encoder_path = pretrained_encoder_path
        self._encoder_unread = pretrained_encoder_path is not None
        self._make_network = functools.partial(
            spatial_classifier,
            _preprocessor(image_keys, image_size, normalize, frame_sizes, resize, crop),
            arch=arch,
            hidden_dim=hidden_dim,
            num_spatial_blocks=num_spatial_blocks,
            average=not use_pretrain,
            frozen=freeze_encoder,
            width=width,
        )
        super().__init__(self._make_network(norm=norm, padding=padding), precision=precision, **training)

    def load_pretrained_encoder(self) -> None:
        """Read the encoder's weights from `pretrained_encoder_path`; the file decides on norm and padding."""
        if self.pretrained_encoder_path is None:
            raise ConfigError("pretrained_encoder_path: found null, expected the path of a ResNet's weights")
        path = Path(self.pretrained_encoder_path)
        weights, norm, padding = read_pretrained_encoder(path)
        if (norm, padding) != (self.norm, self.padding):
            self.norm, self.padding = norm, padding
            self.network = self._make_network(norm=norm, padding=padding).eval().to(self.device)
        check_weights(self.network.encoder.state_dict(), weights, path)
        self.network.encoder.load_state_dict(weights)
        self._encoder_unread = False

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        super().load_state_dict(state)
        self._encoder_unread = False

    def _check_ready(self) -> None:
        if self._encoder_unread:
            raise ConfigError(
                f"pretrained_encoder_path: the weights in '{self.pretrained_encoder_path}' have not been read, because "
                "constructors read no files. Call load_pretrained_encoder(), or use create_reward_model"
            )

    def read_files(self) -> None:
        if self.pretrained_encoder_path is not None:
            self.load_pretrained_encoder()

    def settings(self) -> dict[str, Any]:
        own = ("num_spatial_blocks", "pretrained_encoder_path", "use_pretrain", "padding")
        named = {name: getattr(self, name) for name in own}
        return {**named, "freeze_encoder": self.network.frozen, **self._common_settings()}


def _preprocessor(
    image_keys: Sequence[str],
    image_size: Sequence[int],
    normalize: bool,
    frame_sizes: Mapping[str, Sequence[int]] | None,
    resize: Resize,
    crop: Mapping[str, Sequence[float]] | None,
) -> ImagePreprocessor:
    if len(image_size) != 3:
        raise ConfigError(f"image_size: found {list(image_size)}, expected [3, height, width]")
    # A string is a sequence too, of characters.
    cameras = (image_keys,) if isinstance(image_keys, str) else tuple(image_keys)
    if not isinstance(frame_sizes, (Mapping, NoneType)):
        raise ConfigError(f"frame_sizes: found a {type(frame_sizes).__name__}, expected [height, width] by camera")
    if not isinstance(crop, (Mapping, NoneType)):
        raise ConfigError(f"crop: found a {type(crop).__name__}, expected [top, left, height, width] by camera")
    recorded: Any = {camera: tuple(size) for camera, size in (frame_sizes or {}).items()}
    size: Any = tuple(image_size)
    return ImagePreprocessor(cameras, size, normalize, recorded, resize, dict(crop or {}))
