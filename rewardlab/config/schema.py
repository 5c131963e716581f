"""Every key a configuration can have: its type, its default and what it means.

The meaning of a key is the comment behind it, or above it; that of a block is the docstring of its class.
`rewardlab config show` prints them (`rewardlab.config.meanings`).
The classes are pydantic dataclasses, so building one checks types, choices and ranges. They read no files; whether a
path exists is checked by `rewardlab.config.run_checks`. A `None` default always says in its comment what it stands for.
"""

import dataclasses
import re
from typing import Annotated, Any, Literal, TypeVar, cast, dataclass_transform

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PositiveFloat,
    Tag,
    model_validator,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic_core import PydanticCustomError

from rewardlab.arguments import check_path, check_seed, split_device
from rewardlab.config.task_names import task_name
from rewardlab.errors import ConfigError
from rewardlab.frame_choice import FrameChoice
from rewardlab.frame_crops import check_crop
from rewardlab.frame_sizes import Resize

T = TypeVar("T")
MAX_NUMBER = 2**53  # of things: arrays cannot have more, and beyond it a float is not exact


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,))
def section(cls: type[T]) -> type[T]:
    """A block of keys: immutable, built by keyword, with no unknown keys and no silent conversion of types."""
    rules = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    return cast(type[T], pydantic_dataclass(frozen=True, kw_only=True, config=rules)(cls))


def _rule(text: str) -> PydanticCustomError:
    """Return the error for values that do not go together; `text` begins with the key, relative to its block."""
    return PydanticCustomError("rule", "{text}", {"text": text})


def _image_size(size: object) -> object:
    if not isinstance(size, (list, tuple)) or len(size) != 3 or size[0] != 3:
        raise ValueError("[3, height, width]")
    if any(type(n) is not int or n < 8 for n in size[1:]):
        raise ValueError("[3, height, width] with a height and a width of at least 8")
    return tuple(size)


def _pose(pose: object) -> object:
    if not isinstance(pose, (list, tuple)) or len(pose) != 6:
        raise ValueError("6 numbers: x, y, z, roll, pitch, yaw")
    return tuple(pose)


def _crop(crop: object) -> object:
    try:
        return check_crop(crop, "crop")
    except ConfigError:
        raise ValueError("[top, left, height, width], in pixels or as fractions of the frame") from None


def _place(place: object) -> object:
    if type(place) is int and place >= 0:
        return f"0-{place}"
    if not isinstance(place, str) or not re.fullmatch(r".+-\d+", place):
        raise ValueError(
            '"<node>-<device>" such as 0-1, where the node is a number or a label of cluster.node_groups, or the '
            "number of a device of node 0"
        )
    return place


def _frames(frames: object) -> object:
    FrameChoice.parse(frames)
    return frames


def _device(device: object) -> object:
    kind, number = split_device(device if isinstance(device, str) else "")
    return kind if number is None else f"{kind}:{number}"


def _module_and_name(name: object) -> object:
    module, _, attribute = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not all(part.isidentifier() for part in [*module.split("."), attribute]):
        raise ValueError("module:name of a class, such as gymnasium.wrappers:RescaleAction")
    return name


def _path(path: object) -> object:
    return check_path(path) if isinstance(path, str) else path


def _seed(seed: object) -> object:
    return check_seed(seed) if type(seed) is int else seed


def _paths(paths: object) -> object:
    several = isinstance(paths, (list, tuple)) and len(paths) > 0 and all(isinstance(path, str) for path in paths)
    if not several and not isinstance(paths, str):
        raise ValueError("a directory, or a list of directories")
    for path in [paths] if isinstance(paths, str) else cast("list[str]", paths):
        check_path(path)
    return tuple(paths) if several else paths  # type: ignore[arg-type]


ImageSize = Annotated[tuple[int, int, int], BeforeValidator(_image_size)]  # channels first: [3, height, width]
Pose = Annotated[tuple[float, float, float, float, float, float], BeforeValidator(_pose)]
CropNumbers = Annotated[tuple[float, float, float, float], BeforeValidator(_crop)]
Frames = Annotated[str, BeforeValidator(_frames)]
Device = Annotated[str, BeforeValidator(_device)]
PathText = Annotated[str, BeforeValidator(_path)]
Seed = Annotated[int, BeforeValidator(_seed)]
PositiveInt = Annotated[int, Field(gt=0, le=MAX_NUMBER)]
NonNegativeInt = Annotated[int, Field(ge=0, le=MAX_NUMBER)]
Threads = Annotated[int, Field(gt=0, le=1024)]
WorkerCount = Annotated[int, Field(gt=0, le=1000)]
Place = Annotated[str, BeforeValidator(_place)]
Paths = Annotated[str | tuple[str, ...], BeforeValidator(_paths)]
Precision = Literal["fp32", "bf16", "auto"]  # auto: the faster one on this device; on a CPU that is measured
ScoringBackend = Literal["torch", "onnx", "auto"]  # auto: ONNX Runtime if installed, on the CPU in fp32; else torch
Probability = Annotated[float, Field(gt=0, lt=1)]
Discount = Annotated[float, Field(ge=0, le=1)]
NonNegativeFloat = Annotated[float, Field(ge=0)]


@section
class EarlyStopConfig:
    """For train_reward."""

    patience: PositiveInt | None = None  # validations without improvement before training stops; null = never
    monitor: Literal["val_loss", "val_accuracy"] = "val_loss"  # what stops training and also picks the best model


@section
class LoggerConfig:
    """Where logs and results go."""

    log_path: PathText = "runs"  # directory of logs and results
    experiment_name: str = ""  # directory of this run inside log_path; "" = log_path itself
    wandb_project: str | None = None  # also log to this project of Weights & Biases; null = do not
    wandb_offline: bool = False  # write its files below the run's directory only, for `wandb sync` later


@section
class PageConfig:
    """The page of a run in a browser: what it does now, and buttons to label, move and stop robots."""

    port: Annotated[int, Field(ge=0, le=65535)] | None = None  # 0 = any that is free; null = no page
    host: str = "127.0.0.1"  # address to listen at; others than this machine's own let in who knows the token


@section
class RunnerConfig:
    """What a run does, how long, and where its results go."""

    task: Literal["collect", "train_reward", "train_policy"] = "train_policy"  # what a run of this configuration does
    max_epochs: PositiveInt = 100  # passes over the data (train_reward), rollout-and-update rounds (train_policy)
    max_steps: PositiveInt | None = None  # stop after this many optimizer steps; null = max_epochs decides
    max_env_steps: PositiveInt | None = None  # train_policy: stop after this many environment steps; null = likewise
    stop_at_success: Probability | None = None  # train_policy: stop when this share of evaluated episodes succeed
    stop_at_return: float | None = None  # train_policy: stop when evaluated episodes have this mean return
    val_check_interval: PositiveInt = 1  # epochs between two validations
    eval_episodes: PositiveInt | None = None  # of a policy's validation; null = one in each of env.eval.num_envs
    save_interval: PositiveInt = 10  # epochs between two checkpoints; environments are reset at each
    checkpoint_dir: PathText | None = None  # where checkpoints go; null = <log_path>/<experiment_name>/checkpoints
    best_model_file: PathText | None = None  # train_reward: write the best model as one .pt file too; null = do not
    resume_dir: PathText | None = None  # checkpoint to continue from; null = from the start
    early_stop: EarlyStopConfig = EarlyStopConfig()
    page: PageConfig = PageConfig()
    logger: LoggerConfig = LoggerConfig()


@section
class WrapperConfig:
    name: Annotated[str, BeforeValidator(_module_and_name)]  # module:name of a class
    options: dict[str, Any] = dataclasses.field(default_factory=dict)  # its keyword arguments


@section
class EnvConfig:
    """An environment: its id, what is seen of it, and how many copies of it step together."""

    id: str = "tabletop/PickCube"  # of a family, of Gymnasium, or module:name, also of a class or function of yours
    num_envs: PositiveInt = 1  # environments stepped as one batch
    processes: PositiveInt | None = None  # that step them; null = as many as cores if a step is expensive, else 1
    max_episode_steps: PositiveInt | None = None  # of the policy; null = the environment's own limit
    action_repeat: PositiveInt = 1  # steps of the environment for one of the policy; rewards are summed
    reward: Literal["dense", "sparse"] = "dense"  # the environment's own reward, or 1 for a step of success
    # What the policy sees; "proprio+images": pictures and the state of the robot, not of the scene (tabletop).
    obs_mode: Literal["state", "images", "state+images", "proprio+images"] = "state"
    cameras: tuple[str, ...] = ("base_camera",)  # whose pictures are seen, scored or collected
    image_size: ImageSize = (3, 64, 64)  # of the pictures: channels, height, width
    # Steps of success in a row that end the episode; null = never. With reward.model.ends_episode, that many claims of
    # the model (null = 1), and the environment's own success ends nothing.
    success_hold_steps: PositiveInt | None = None
    wrappers: tuple[WrapperConfig, ...] = ()  # the user's own, the first one innermost
    target_ee_pose: Pose | None = None  # robots: goal of the tool, x, y, z, roll, pitch, yaw (m, rad)
    options: dict[str, Any] = dataclasses.field(default_factory=dict)  # keyword arguments of this environment

    @property
    def task(self) -> str:
        """Name of the task in episodes and reports: the id, and the settings that change what is seen or done."""
        return task_name(self.id, self.options, self.action_repeat, [(w.name, w.options) for w in self.wrappers])

    @property
    def frame_size(self) -> tuple[int, int]:
        """Height and width of a picture."""
        return self.image_size[1], self.image_size[2]


@section
class EnvsConfig:
    """The environments of training and of evaluation."""

    train: EnvConfig = EnvConfig()
    eval: EnvConfig = EnvConfig()  # every key not set here has the value of `train`


@section
class CollectionConfig:
    """The collection of labelled episodes."""

    enabled: bool = False  # also collect while a policy trains; the collect task always collects
    save_dir: PathText = "collected_data"  # directory of the episodes
    episodes: PositiveInt | None = None  # new episodes after which it ends; null = when the targets are reached
    target_success: PositiveInt | None = None  # successful episodes to have in the directory; null = any number
    target_failure: PositiveInt | None = None  # failed ones; once a target is reached, more of its kind are not kept
    watched_envs: PositiveInt | None = None  # keep the episodes of the first so many environments; null = of all
    policy: str = "noisy_expert"  # expert, noisy_expert, random, still, your module:name, or the directory of a run
    explore: bool = True  # a trained policy acts with exploration, as in training; false = without
    random_actions: Annotated[float, Field(ge=0, le=1)] = 0.0  # fraction of random actions
    # A file for each episode; or "transitions": one data.pkl with all of them, as robots are recorded.
    format: Literal["safetensors", "pickle", "npy", "transitions"] = "safetensors"
    success_dir: PathText | None = None  # successful episodes; null = the folder that the format has inside save_dir
    failure_dir: PathText | None = None  # failed episodes; likewise
    cameras: tuple[str, ...] | None = None  # whose pictures to keep; null = env.train.cameras, [] = none
    frames: Frames = "all"  # which frames get pictures: all, every:5 (and the last one), last:10; drawing costs time
    durable: bool = False  # wait for the disk, so that a power cut loses nothing: for robots


@section
class DataConfig:
    """The episodes that a success classifier is trained on, and which of their frames."""

    data_path: Paths | None = None  # directory of the episodes to train on, or a list of directories
    num_samples_per_episode: NonNegativeInt = 0  # frames taken of each episode; 0 = all
    fail_success_ratio: PositiveFloat | None = None  # failure frames per success frame in training; null = see balanced
    balanced: bool = True  # without fail_success_ratio: as many success as failure frames; false = as collected
    augment: bool = True  # shift and recolour training frames at random
    val_fraction: Probability = 0.2  # part of the episodes held out for validation
    debug_save_dir: PathText | None = None  # write some training frames here, as the network sees them; null = do not
    collection: CollectionConfig = CollectionConfig()

    @property
    def paths(self) -> tuple[str, ...]:
        """The directories of `data_path`."""
        if self.data_path is None:
            return ()
        return (self.data_path,) if isinstance(self.data_path, str) else self.data_path


@section
class ThresholdConfig:
    """How the threshold of a success classifier is chosen."""

    target_fpr: Probability = 0.01  # share of failure frames that may be called success; decides the threshold


@section
class RewardModelConfig:
    """A reward model. A null that describes the architecture means: as in the checkpoint, else the network's default.

    The keys from `arch` on are of success classifiers; what another model takes is in `options`.
    """

    model_type: str | None = None  # registered name ("rnd"), or module:name of one of yours
    name: str | None = None  # of its term: of its column in batches, its figures and its directory; null = model_type
    options: dict[str, Any] = dataclasses.field(default_factory=dict)  # keyword arguments of this reward model
    weight: float = 1.0  # of its reward, where there are several models
    cotrain: bool | None = None  # go on training it; null = as reward.cotrain says
    ends_episode: bool = False  # success classifiers: env.train.success_hold_steps claims in a row end the episode
    checkpoint_path: PathText | None = None  # trained reward model: a checkpoint directory, .safetensors or .pt
    arch: str | None = None  # backbone, such as "resnet18"
    width: PositiveInt | None = None  # channels of its first stage; 64 is the customary ResNet
    hidden_dim: PositiveInt | None = None  # width of the classifier head
    dropout: Annotated[float, Field(ge=0, lt=1)] | None = None  # fraction of the head's units that training drops
    image_size: ImageSize | None = None  # of what the network sees: channels, height, width
    image_keys: tuple[str, ...] | None = None  # cameras the model looks at
    # Frames of another size than those that a classifier was trained on: "reduce" larger ones of the same aspect, and
    # refuse others; "allow": resize any.
    resize: Resize = "reduce"
    # What it looks at of the recorded frames of a camera: [top, left, height, width], in pixels or as fractions. null =
    # as the data were processed (`rewardlab data process --crop`), {} = everything.
    crop: dict[str, CropNumbers] | None = None
    normalize: bool | None = None  # normalise images with the ImageNet mean and deviation
    num_spatial_blocks: PositiveInt | None = None  # blocks of the learned spatial pooling
    use_pretrain: bool | None = None  # start from the weights at pretrained_encoder_path
    pretrained_encoder_path: PathText | None = None  # weights of the encoder alone
    freeze_encoder: bool | None = None  # train the head only
    precision: Precision = "fp32"  # of the network's computations: fp32, bf16, or auto: the faster one
    debug_save_dir: PathText | None = None  # write scored frames here; null = do not. Default: $DEBUG_IMAGE_SAVE_DIR


def _one_or_several(model: object) -> str:
    return "several" if isinstance(model, (list, tuple)) else "one"


SEVERAL_MODELS = ("one", "several")  # pydantic names them in the place of an error
RewardModels = Annotated[
    Annotated[RewardModelConfig, Tag("one")] | Annotated[tuple[RewardModelConfig, ...], Tag("several")],
    Discriminator(_one_or_several),
]


@section
class AuditConfig:
    """Watching a success classifier while a policy trains on it; see `rewardlab.rewards.audit` for the rules."""

    enabled: bool = True  # compare what the model says with the truth
    max_fpr: Probability = 0.1  # share of the policy's failure frames that may be called success
    max_drift: Probability = 0.2  # where success is unknown: how far scores may be from the held-out frames' (KS)
    window: Annotated[int, Field(ge=5)] = 10  # iterations that an alarm looks back on
    on_alarm: Literal["warn", "stop", "terminal"] = "warn"  # "terminal": go on with reward_mode terminal
    disputed_frames: NonNegativeInt = 64  # newest misjudged frames kept as PNGs, of each kind; 0 = none


@section
class RewardConfig:
    """Where the reward of a policy comes from."""

    use_reward_model: bool = False  # false = the environment's own reward
    group_name: str = "RewardGroup"  # name of the reward workers
    reward_mode: Literal["per_step", "terminal"] = "per_step"  # score every frame, or only the last of an episode
    reward_type: Literal["binary", "continuous"] = "binary"  # threshold the probability, or use it as it is
    success_reward: float = 1.0  # of a frame that the model calls a success
    fail_reward: float = 0.0  # of any other frame that it scores
    reward_threshold: Probability | None = None  # null = the threshold stored in the checkpoint
    # Least recall, by its checkpoint, of a classifier whose threshold decides rewards: with less, `rewardlab run` does
    # not begin. 0 = begin with any.
    min_recall: Annotated[float, Field(ge=0, lt=1)] = 0.1
    combine_mode: Literal["replace", "add", "weighted"] = "replace"  # with the environment's reward
    backend: ScoringBackend = "torch"  # library that success classifiers score frames with
    pretrain: bool = False  # train the reward model on its expert data before the policy begins
    cotrain: bool = False  # go on training the reward model on the policy's own episodes
    # Off policy: score stored frames again when the model has changed, or whenever they are drawn ("sample"), as models
    # that judge transitions always do.
    relabel: Literal["changed", "sample"] = "changed"
    reward_weight: float = 1.0  # of the model's reward
    env_reward_weight: float = 0.0  # of the environment's; combine_mode "weighted" only
    model: RewardModels = RewardModelConfig()  # or a list of them, whose rewards are weighted and summed
    audit: AuditConfig = AuditConfig()

    @property
    def models(self) -> tuple[RewardModelConfig, ...]:
        return self.model if isinstance(self.model, tuple) else (self.model,)

    def cotrains(self, model: RewardModelConfig) -> bool:
        """Whether this one of the models goes on learning."""
        return self.cotrain if model.cotrain is None else model.cotrain

    @model_validator(mode="after")
    def _has_checkpoint(self) -> "RewardConfig":
        if not self.models:
            raise _rule("model: found an empty list, expected at least one reward model")
        # Whether a model named by its type can begin without one is known when it is built.
        if self.use_reward_model and any(m.checkpoint_path is None and m.model_type is None for m in self.models):
            raise _rule(
                "model.checkpoint_path: found null, expected the path of a trained reward model, because "
                "reward.use_reward_model is true (random weights are never used); or name one that learns in the run, "
                "such as model_type: rnd"
            )
        return self


@section
class PPOConfig:
    """PPO: learns from what the newest policy has just done."""

    rollout_steps: PositiveInt = 50  # steps of each environment between two updates
    update_epochs: PositiveInt = 4  # passes over a rollout
    gae_lambda: Discount = 0.95  # of generalised advantage estimation: 0 trusts the critic, 1 the returns
    clip_ratio: PositiveFloat = 0.2  # largest relative change of an action's probability in one update
    value_clip: PositiveFloat | None = None  # largest change of a value in one update; null = not clipped
    entropy_coef: NonNegativeFloat = 0.0  # weight of the policy's entropy, for exploration
    value_coef: NonNegativeFloat = 0.5  # weight of the critic's loss
    target_kl: PositiveFloat | None = None  # KL divergence of the policy at which an update ends early; null = never
    normalize_reward: bool = False  # divide rewards by the running deviation of the discounted return
    image_shift: bool = False  # shift the policy's pictures at random in updates


@section
class SACConfig:
    """SAC, and RLPD: learns from stored transitions, with continuous actions."""

    rollout_steps: PositiveInt = 32  # steps of each environment between two rounds of updates
    replay_size: PositiveInt = 1_000_000  # transitions kept
    learning_starts: NonNegativeInt = 5_000  # environment steps before the first update
    utd_ratio: PositiveFloat = 1.0  # updates of the critics per environment step (update to data)
    policy_delay: PositiveInt | None = None  # updates of the critics per update of the actor; null = utd_ratio
    tau: Annotated[float, Field(gt=0, le=1)] = 0.005  # speed of the target networks
    init_alpha: PositiveFloat = 1.0  # first temperature; it is tuned from there
    # Targets count the entropy of later actions. Where success ends an episode and pays once, it may outweigh success:
    # then false, as in HIL-SERL.
    backup_entropy: bool = True
    num_critics: PositiveInt = 2  # networks that estimate the return; the least of them counts
    critic_subset: PositiveInt | None = None  # critics drawn anew for each target's minimum (REDQ, RLPD); null = all
    critic_layer_norm: bool = False  # against overestimated values at a high utd_ratio (RLPD)
    demo_path: PathText | None = None  # episodes of an expert to learn from too (RLPD); null = none
    demo_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.5  # of a batch, drawn from demonstrations if there are any
    image_shift: bool = True  # shift the pictures at random in updates (DrQ)

    @model_validator(mode="after")
    def _subset_of_the_critics(self) -> "SACConfig":
        if self.critic_subset is not None and self.critic_subset > self.num_critics:
            found, critics = self.critic_subset, self.num_critics
            raise _rule(f"critic_subset: found {found}, expected at most num_critics, which is {critics}")
        return self

    @property
    def updates_per_actor_update(self) -> int:
        return self.policy_delay if self.policy_delay is not None else max(1, round(self.utd_ratio))


@section
class DQNConfig:
    """DQN: learns from stored transitions, with a choice of actions."""

    rollout_steps: PositiveInt = 32  # steps of each environment between two rounds of updates
    replay_size: PositiveInt = 100_000  # transitions kept
    learning_starts: NonNegativeInt = 1_000  # environment steps before the first update
    utd_ratio: PositiveFloat = 0.25  # updates per environment step (update to data)
    target_update_interval: PositiveInt = 500  # updates between two moves of the target network
    tau: Annotated[float, Field(gt=0, le=1)] = 1.0  # how far each move goes; 1 = a copy
    epsilon_start: Discount = 1.0  # fraction of random actions at the first environment step
    epsilon_end: Discount = 0.05  # ... and from epsilon_steps on
    epsilon_steps: PositiveInt = 10_000  # environment steps over which it falls
    image_shift: bool = False  # shift the pictures at random in updates


@section
class AsyncConfig:
    """Acting and learning at the same time, each at its own pace (sac, dqn). Such runs cannot be repeated to the bit.

    The learner has a process of its own. `rollout_steps` is the number of steps that are sent to it together, and
    `utd_ratio` the largest number of updates per environment step: it makes fewer if it is slower than that.
    """

    enabled: bool = False  # act and learn at the same time
    publish_interval: PositiveInt = 50  # updates between two versions of the policy that the acting side gets
    on_learner_death: Literal["act", "stop"] = "act"  # "act": with the old weights, while it is started again


@section
class AlgorithmConfig:
    """The RL algorithm of train_policy."""

    name: Literal["ppo", "sac", "dqn"] = "ppo"  # which one; the others' blocks have no effect
    gamma: Discount = 0.99  # discount of later rewards
    asynchronous: AsyncConfig = AsyncConfig()
    ppo: PPOConfig = PPOConfig()
    sac: SACConfig = SACConfig()
    dqn: DQNConfig = DQNConfig()

    @property
    def off_policy(self) -> SACConfig | DQNConfig | None:
        """The settings of the chosen algorithm if it learns off policy, from stored transitions; else None."""
        return {"ppo": None, "sac": self.sac, "dqn": self.dqn}[self.name]

    @property
    def rollout_steps(self) -> int:
        return (self.off_policy or self.ppo).rollout_steps


@section
class OptimConfig:
    """The optimizer."""

    lr: PositiveFloat = 1e-4  # learning rate
    weight_decay: NonNegativeFloat = 0.0  # of AdamW
    max_grad_norm: PositiveFloat | None = None  # to which gradients are clipped; null = they are not
    schedule: Literal["constant", "cosine"] = "cosine"  # of the learning rate; cosine: warm up, fall to a tenth


@section
class PolicyModelConfig:
    """The network of the policy."""

    kind: Literal["mlp", "cnn"] = "mlp"  # for states, for images (with or without states)
    hidden_sizes: tuple[PositiveInt, ...] = (256, 256)  # units of each hidden layer
    activation: Literal["tanh", "relu"] | None = None  # null = tanh for ppo, relu for sac and dqn, as is customary
    normalize_states: bool = True  # by their running mean and deviation, which are saved with the weights
    init_std: PositiveFloat = 1.0  # ppo, continuous actions: deviation of the first policy, in the actions' own units


@section
class ActorConfig:
    """What is being trained: the policy, or the reward model when runner.task is train_reward."""

    global_batch_size: PositiveInt = 64  # samples per optimizer step, over all devices
    micro_batch_size: PositiveInt | None = None  # samples per forward pass; null = global_batch_size
    precision: Precision = "fp32"  # of a policy's updates; bf16 = mixed precision. Models have their own
    threads: Threads | None = None  # CPU threads of a policy update; null = all cores if it sees pictures, else 1
    optim: OptimConfig = OptimConfig()
    model: PolicyModelConfig = PolicyModelConfig()

    @model_validator(mode="after")
    def _whole_micro_batches(self) -> "ActorConfig":
        if self.micro_batch_size is not None and self.global_batch_size % self.micro_batch_size:
            found, micro = self.global_batch_size, self.micro_batch_size
            raise _rule(f"global_batch_size: found {found}, expected a multiple of micro_batch_size, which is {micro}")
        return self


@section
class HardwareConfig:
    type: str  # Franka, http, or module:name of an adapter of yours
    configs: tuple[dict[str, Any], ...] = ()  # a block for each robot, such as {robot_ip: 172.16.0.1:5000}


@section
class NodeGroupConfig:
    """Nodes under a name that component_placement can use, or the robots that are attached to them."""

    label: str | None = None  # name of the group, such as arm: a component is placed there with arm-0
    node_ranks: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)] = (0,)  # nodes in the group
    hardware: HardwareConfig | None = None  # what these nodes have besides CPU and GPU


@section
class ClusterConfig:
    """The processes and machines of a run, and their devices."""

    backend: Literal["local", "ray"] = "local"  # one process with helpers, or Ray: processes on any machines
    device: Device = "auto"  # kind of device of all components; auto = the accelerator if there is one, else the CPU
    component_placement: dict[Literal["actor", "env", "rollout", "reward"], Place] = dataclasses.field(
        default_factory=dict
    )  # "<node>-<device>" of a component; absent = all devices in turn, or the one that cluster.device names
    workers: dict[Literal["actor", "env", "rollout", "reward"], WorkerCount] = dataclasses.field(
        default_factory=dict
    )  # how many workers a component has; absent = 1. train_policy has one actor, and a rollout worker per env
    node_groups: tuple[NodeGroupConfig, ...] = ()

    @property
    def device_kind(self) -> str:
        """The kind of `device` without its number: auto, cpu, cuda ..."""
        return self.device.partition(":")[0]


@section
class ExperimentConfig:
    seed: Seed = 0  # of everything random: the same seed gives the same run
    runner: RunnerConfig = RunnerConfig()
    env: EnvsConfig = EnvsConfig()
    data: DataConfig = DataConfig()
    threshold: ThresholdConfig = ThresholdConfig()
    reward: RewardConfig = RewardConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    actor: ActorConfig = ActorConfig()
    cluster: ClusterConfig = ClusterConfig()

    @model_validator(mode="after")
    def _collection_ends(self) -> "ExperimentConfig":
        plan = self.data.collection
        ends = plan.episodes is not None or (plan.target_success is not None and plan.target_failure is not None)
        if self.runner.task == "collect" and not ends:
            raise _rule(
                "data.collection.episodes: found null, expected a number of episodes (or both target_success and "
                "target_failure): without them the collection never ends"
            )
        return self
