"""Environments, vector environments and policies as users write them: a gripper on a rail, and pictures of it."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space


class Rail(gymnasium.Env[Any, Any]):
    """A state; pictures come from render() alone. Episodes have `length` steps, and success has a type of NumPy's."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}
    observation_space: spaces.Space[Any] = spaces.Box(-1, 1, (2,), np.float32)
    action_space: spaces.Space[Any] = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, render_mode: str | None = None, length: int = 6) -> None:
        self.render_mode, self.length = render_mode, length

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.steps = float(self.np_random.uniform(-0.9, -0.5)), 0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.place = float(np.clip(self.place + 0.4 * float(action[0]), -1, 1))
        self.steps += 1
        return self.observe(), self.place, False, self.steps == self.length, self.say(self.place > 0.5)

    def say(self, success: bool) -> dict[str, Any]:
        return {"is_success": np.float32(success)}

    def observe(self) -> Any:
        return np.array([self.place, 0.5], np.float32)

    def render(self) -> Any:
        frame = np.zeros((48, 64, 3), np.uint8)
        frame[:, int((self.place + 1) * 28) :] = 255
        return frame

    def picture(self) -> Any:
        return np.ascontiguousarray(Rail.render(self)[:, :48])


gymnasium.register("test-own/Rail-v0", Rail)


class RowsFirst(Rail):
    """The observation is a picture [H, W, 3]."""

    observation_space = spaces.Box(0, 255, (48, 48, 3), np.uint8)

    def observe(self) -> Any:
        return self.picture()


class ColoursFirst(Rail):
    """The observation is a picture [3, H, W], of floats."""

    observation_space = spaces.Box(0, 1, (3, 48, 48), np.float32)

    def observe(self) -> Any:
        return self.picture().transpose(2, 0, 1).astype(np.float32) / 255


class Pixels(Rail):
    """As environments of LeRobot: pictures by camera beside numbers, and nothing else to draw."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}
    observation_space = spaces.Dict(
        pixels=spaces.Dict(top=spaces.Box(0, 255, (48, 48, 3), np.uint8)), agent_pos=spaces.Box(-1, 1, (2,), np.float32)
    )

    def observe(self) -> Any:
        return {"pixels": {"top": self.picture()}, "agent_pos": super().observe()}


class Agentview(Rail):
    """As environments of robosuite: everything has a name of its own."""

    observation_space = spaces.Dict(
        {name: spaces.Box(0, 255, (48, 48, 3), np.uint8) for name in ("agentview_image", "eye_in_hand_image")}
        | {"robot-state": spaces.Box(-1, 1, (2,), np.float32), "object-state": spaces.Box(-1, 1, (1,), np.float64)}
    )

    def observe(self) -> Any:
        pictures = {"agentview_image": self.picture(), "eye_in_hand_image": 255 - self.picture()}
        return {**pictures, "robot-state": super().observe(), "object-state": np.full(1, 0.25)}


class Goals(Rail):
    """Goals, and a picture beside them."""

    observation_space = spaces.Dict(
        {name: spaces.Box(-1, 1, (1,), np.float64) for name in ("observation", "achieved_goal", "desired_goal")}
        | {"image": spaces.Box(0, 255, (48, 48, 3), np.uint8)}
    )

    def observe(self) -> Any:
        place = np.array([self.place])
        return {
            "observation": place,
            "achieved_goal": place,
            "desired_goal": np.full(1, 0.5),
            "image": self.picture(),
        }


class Odd(Rail):
    """Text, a choice, and several arrays of success in a list."""

    observation_space = spaces.Dict(mission=spaces.Text(20), side=spaces.Discrete(2), place=spaces.Box(-1, 1, (1,)))

    def observe(self) -> Any:
        return {"mission": "go right", "side": 1, "place": np.full(1, self.place, np.float32)}

    def say(self, success: bool) -> dict[str, Any]:
        return {"succeed": np.array([success])}


class Depth(Rail):
    observation_space = spaces.Dict(depth=spaces.Box(0, 1, (40, 40, 1)), place=spaces.Box(-1, 1, (1,)))

    def observe(self) -> Any:
        return {"depth": np.zeros((40, 40, 1), np.float32), "place": np.full(1, self.place, np.float32)}


class Silent(Rail):
    def say(self, success: bool) -> dict[str, Any]:
        return {"won": success}


class Blind(Rail):
    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}


class Done(Rail):
    """A success from the first frame on."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = float(self.np_random.uniform(0.8, 0.9))
        return self.observe(), {"is_success": True}


class Burning(Rail):
    def step(self, action: Any) -> Any:
        raise RuntimeError("motor on fire")


class Needy(Rail):
    def __init__(self, robot: str, render_mode: str | None = None) -> None:
        super().__init__(render_mode)


class NoEnv:
    def reset(self) -> None: ...

    def step(self) -> None: ...


def passes_on(**options: Any) -> Rail:
    return Rail(**options)


def returns_nothing() -> None: ...


def one_with_a_count(num_envs: int) -> Rail:
    return Rail()


def four() -> Any:
    return SyncVectorEnv([Rail] * 4)


ready = Rail()
number = 7


def next_step(num_envs: int) -> Any:
    return SyncVectorEnv([_drawn] * num_envs)


def same_step(num_envs: int) -> Any:
    return SyncVectorEnv([_drawn] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def disabled(num_envs: int) -> Any:
    return SyncVectorEnv([_drawn] * num_envs, autoreset_mode=AutoresetMode.DISABLED)


def same_step_pixels(num_envs: int) -> Any:
    return SyncVectorEnv([Pixels] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def disabled_pixels(num_envs: int) -> Any:
    return SyncVectorEnv([Pixels] * num_envs, autoreset_mode=AutoresetMode.DISABLED)


def _drawn() -> Rail:
    return Rail(render_mode="rgb_array")


class Batch(VectorEnv[Any, Any, Any]):
    """One array of places, with infos that have no masks; it resets nothing by itself. Every copy has another limit."""

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.DISABLED}

    def __init__(self, num_envs: int, follows_masks: bool = True) -> None:
        self.num_envs, self.follows_masks = num_envs, follows_masks
        self.single_observation_space = spaces.Box(-9, 9, (1,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.place = np.zeros(num_envs, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        mask = np.ones(self.num_envs, bool)
        if options is not None and self.follows_masks:
            mask = options["reset_mask"]
        self.place[mask] = 0
        return self.place[:, None].copy(), {"success": self.place > 1}

    def step(self, action: Any) -> Any:
        self.place += 1
        ends = self.place >= 2 + np.arange(self.num_envs)
        return self.place[:, None].copy(), self.place, ends, np.zeros_like(ends), {"success": self.place > 1}


class Unmasked(Batch):
    def reset(self, seed: int | None = None) -> Any:  # type: ignore[override]
        return super().reset(seed=seed)


class Right:
    """A policy without a decorator, arguments or memory."""

    def act(self, observation: Any) -> Any:
        return np.ones((len(observation), 1), np.float32)


class Steady:
    """Goes to the right, whatever is observed."""

    def __init__(self, env: Any) -> None:
        self.actions = np.ones(env.action_space.shape, np.float32)

    def act(self, observation: Any) -> Any:
        return self.actions


class Mixed:
    """Half of the actions lead to the right; told where episodes begin."""

    def __init__(self, env: Any, seed: int) -> None:
        self.rng, self.shape, self.begun = np.random.default_rng(seed), env.action_space.shape, 0

    def begin(self, fresh: Any) -> None:
        self.begun += int(fresh.sum())

    def act(self, observation: Any) -> Any:
        return self.rng.choice([-1.0, 1.0], self.shape)


def go_right(observation: Any, speed: float = 1.0) -> Any:
    return np.full((len(observation), 1), speed)


def make_right(env: Any) -> Right:
    return Right()


def one_action(observation: Any) -> Any:
    return np.ones(1)
