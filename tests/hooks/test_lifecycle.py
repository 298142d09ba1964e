"""Life-cycle hooks: a third party's exception is logged and counted, and ends the run only where the plugin wants that."""

from __future__ import annotations

import types
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from spade_agentic import PluginError, PluginManager, hookimpl


def plugin(name: str, *, fatal: bool | None = None, **hooks: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    for hook, function in hooks.items():
        setattr(module, hook, hookimpl(function))
    if fatal is not None:
        module.spade_agentic_fatal = fatal  # type: ignore[attr-defined]
    return module


def fails(step: int) -> None:
    raise ValueError(f"cannot cope with {step}")


@pytest.fixture(autouse=True)
def _plain_logs() -> None:
    structlog.reset_defaults()


def manager_with(*plugins: tuple[types.ModuleType, bool]) -> PluginManager:
    manager = PluginManager()
    for module, third_party in plugins:
        manager.register(module, module.__name__, third_party=third_party)
    return manager


def test_a_hook_gets_the_arguments_that_it_names() -> None:
    seen: list[Any] = []

    def committed(metrics: Any) -> None:
        seen.append(metrics)

    manager = manager_with((plugin("one", step_committed=committed), True))
    manager.call_lifecycle("step_committed", step=3, metrics={"success": 0.5})
    assert seen == [{"success": 0.5}]


def test_a_third_party_exception_is_logged_and_counted_and_the_others_are_called() -> None:
    seen: list[int] = []

    def notes(step: int) -> None:
        seen.append(step)

    manager = manager_with((plugin("bad", step_committed=fails), True), (plugin("good", step_committed=notes), True))
    with capture_logs() as events:
        manager.call_lifecycle("step_committed", step=1, metrics={})
        manager.call_lifecycle("step_committed", step=2, metrics={})
    assert seen == [1, 2]
    assert manager.hook_errors == {("bad", "step_committed"): 2}
    assert manager.hook_error_count == 2
    assert [(e["event"], e["plugin"], e["hook"], e["count"]) for e in events] == [
        ("hook_failed", "bad", "step_committed", 1), ("hook_failed", "bad", "step_committed", 2)
    ]
    assert events[0]["error"] == "ValueError: cannot cope with 1"


def test_a_plugin_that_asks_to_be_fatal_ends_the_run_and_is_named() -> None:
    manager = manager_with((plugin("strict", fatal=True, step_committed=fails), True))
    with capture_logs(), pytest.raises(PluginError, match="'step_committed' of plugin 'strict' raised ValueError") as caught:
        manager.call_lifecycle("step_committed", step=1, metrics={})
    assert isinstance(caught.value.__cause__, ValueError)
    assert "test_lifecycle.py" in str(caught.value.where)
    assert manager.hook_error_count == 1


def test_a_plugin_that_asks_not_to_be_fatal_is_not() -> None:
    manager = manager_with((plugin("lenient", fatal=False, step_committed=fails), True))
    with capture_logs():
        manager.call_lifecycle("step_committed", step=1, metrics={})
    assert manager.hook_error_count == 1


def test_an_exception_of_our_own_is_raised_as_it_is() -> None:
    manager = manager_with((plugin("ours", step_committed=fails), False))
    with pytest.raises(ValueError, match="cannot cope"):
        manager.call_lifecycle("step_committed", step=1, metrics={})


def test_the_plugin_that_was_registered_last_is_called_first() -> None:
    order: list[str] = []
    # `name` has a default: such an argument is the plugin's own affair.
    modules = [plugin(name, run_ended=lambda status, name=name: order.append(name)) for name in ("a", "b", "c")]
    manager = manager_with(*((module, True) for module in modules))
    manager.call_lifecycle("run_ended", run_id="r", status="finished")
    assert order == ["c", "b", "a"]
