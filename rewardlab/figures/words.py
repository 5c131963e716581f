"""Formats metrics for people: 'n/a' where undefined, and never rounded to a perfect 0 or 100 %."""

from rewardlab.figures.metrics import Estimate

UNKNOWN = "n/a"


def number(value: float, unit: str) -> str:
    """Format a number: a share in percent, an area with enough digits to differ from 1, frames."""
    if unit == "frames":
        return f"{value:g}"
    if unit == "area":
        return f"{value:.4f}"
    percent = 100 * value
    if percent in (0, 100):
        return f"{percent:.0f}"
    return f"{percent:.2f}" if min(percent, 100 - percent) < 1 else f"{percent:.1f}"


def share(value: float | None) -> str:
    """Format a share with its sign: '0.42 %'."""
    return UNKNOWN if value is None else f"{number(value, 'share')} %"


def shown(estimate: Estimate, unit: str) -> tuple[str, str]:
    """Format a metric and its interval; the interval is empty where there is none."""
    if estimate.value is None:
        return UNKNOWN, ""
    suffix = {"share": " %", "frames": " frame" if estimate.value == 1 else " frames"}.get(unit, "")
    value = f"{number(estimate.value, unit)}{suffix}"
    if estimate.low is None or estimate.high is None:
        return value, ""
    return value, f"[{number(estimate.low, unit)}, {number(estimate.high, unit)}]"
