"""The shaders that draw pictures: SAPIEN's own, without a table that takes a software renderer seven seconds.

For reflections of an environment map, SAPIEN fills a table of 512x512 (samplerBRDFLUT) before the first picture of a
process, if a shader names it. Scenes without an environment map, which are all but a few, look the same without it.
"""

import functools
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

SHADERS = "minimal"  # SAPIEN's fastest
TABLE = "samplerBRDFLUT"
LOOK_UP = f"texture({TABLE}, vec2(roughness, dotNV)).xy"


def choose_shaders(scene: Any) -> None:
    """Choose the shaders of the cameras that are made next."""
    from mani_skill.render import PREBUILT_SHADER_CONFIGS, set_shader_pack
    from sapien import render

    set_shader_pack(PREBUILT_SHADER_CONFIGS[SHADERS])
    if scene.render_system.cubemap is None and (folder := _write_shaders()) is not None:
        render.set_camera_shader_dir(str(Path(folder.name) / SHADERS))


@functools.cache
def _write_shaders() -> TemporaryDirectory[str] | None:
    """Write SAPIEN's shaders without the table to a folder that lasts as long as this process; None if they changed."""
    import sapien

    source = Path(sapien.__file__).parent / "vulkan_shader"
    texts = {file.name: file.read_text() for file in (source / SHADERS).glob("*.*")}
    if not any(LOOK_UP in text for text in texts.values()):
        return None
    folder = TemporaryDirectory(prefix="rewardlab_shaders_")
    shutil.copytree(source / "common", Path(folder.name) / "common")
    (Path(folder.name) / SHADERS).mkdir()
    for name, text in texts.items():
        lines = text.replace(LOOK_UP, "vec2(0)").splitlines(keepends=True)
        kept = [line for line in lines if TABLE not in line]
        (Path(folder.name) / SHADERS / name).write_text("".join(kept))
    return folder
