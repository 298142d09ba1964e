"""Smart home: a service that looks after homes with lamps, doors, heaters, batteries and routines."""

from __future__ import annotations

import random
from typing import Any, ClassVar

from spade_agentic import ToolError, tool

from ..kit import register_domain
from ..people import PeopleEnv

__all__ = ["BATTERY_KINDS", "DOOR_KINDS", "HEATER_KINDS", "LAMP_KINDS", "ROUTINES", "SmartHome"]

LAMP_KINDS = ("desk", "porch")
DOOR_KINDS = ("front", "garage")
HEATER_KINDS = ("bath", "cellar")
BATTERY_KINDS = ("solar", "backup")
ROUTINES = ("breakfast", "cinema", "dinner", "holiday", "morning", "night", "party", "reading")
BATTERY_HOLDS = 99


@register_domain
class SmartHome(PeopleEnv):
    """Twelve customers; each home has two lamps, doors, heaters and batteries, and three routines."""

    domain: ClassVar[str] = "smart_home"
    system: ClassVar[str] = "You look after smart homes. Do what is asked, then answer done."
    mend_tool: ClassVar[str] = "wake_hub"
    belongings: ClassVar[tuple[str, ...]] = ("lamps", "doors", "heaters", "batteries", "routines")

    def add_belongings(self, rng: random.Random, state: dict[str, Any], customer: str) -> None:
        for kind, level in zip(rng.sample(LAMP_KINDS, 2), rng.sample(range(11, 100), 2), strict=True):
            lamp = {"customer": customer, "kind": kind, "level": level, "status": "on", "rests": 0}
            state["lamps"][self.belonging_id(kind, customer)] = lamp
        for kind in rng.sample(DOOR_KINDS, 2):
            door = {"customer": customer, "kind": kind, "status": rng.choice(("shut", "locked"))}
            state["doors"][self.belonging_id(kind, customer)] = door
        for kind, heat in zip(rng.sample(HEATER_KINDS, 2), rng.sample(range(11, 40), 2), strict=True):
            state["heaters"][self.belonging_id(kind, customer)] = {"customer": customer, "kind": kind, "heat": heat}
        for kind, charge in zip(rng.sample(BATTERY_KINDS, 2), rng.sample(range(31, 47), 2), strict=True):
            battery = {"customer": customer, "kind": kind, "charge": charge, "driven": 0, "bathed": 0}
            state["batteries"][self.belonging_id(kind, customer)] = battery
        for name, minutes in zip(rng.sample(ROUTINES, 3), rng.sample(range(11, 100), 3), strict=True):
            routine = {"customer": customer, "name": name, "minutes": minutes, "status": "ready"}
            state["routines"][self.belonging_id(name, customer)] = routine

    # -- reading

    @tool
    def list_lamps(self, customer: str) -> list[dict[str, Any]]:
        """Show a customer's lamps."""
        return self.listing("lamps", customer, "level", "status")

    @tool
    def list_doors(self, customer: str) -> list[dict[str, Any]]:
        """Show a customer's doors."""
        return self.listing("doors", customer, "status")

    @tool
    def list_heaters(self, customer: str) -> list[dict[str, Any]]:
        """Show a customer's heaters."""
        return self.listing("heaters", customer, "heat")

    @tool
    def list_batteries(self, customer: str) -> list[dict[str, Any]]:
        """Show a customer's batteries."""
        return self.listing("batteries", customer, "charge")

    @tool
    def list_routines(self, customer: str) -> list[dict[str, Any]]:
        """Show a customer's routines."""
        return self.listing("routines", customer, "minutes", "status")

    # -- lamps

    def _working_lamp(self, lamp: str) -> dict[str, Any]:
        found = self.record("lamps", lamp)
        if found["status"] != "on":
            raise ToolError(f"lamp is {found['status']}")
        return found

    def _mend(self, table: str, key: str, before: str, after: str) -> str:
        found = self.record(table, key)
        if found["status"] != before:
            raise self.breach(f"it is not {before}")
        found["status"] = after
        return "ok"

    @tool
    def sleep_lamp(self, lamp: str) -> str:
        """Keep a lamp dark until tomorrow."""
        found = self._working_lamp(lamp)
        found["status"] = "asleep"
        found["rests"] += 1
        return "ok"

    @tool
    def remove_lamp(self, lamp: str) -> str:
        """Take a lamp out of the home for good."""
        self._working_lamp(lamp)["status"] = "removed"
        return "ok"

    @tool
    def set_level(self, lamp: str, level: int) -> str:
        """Set how bright a lamp is."""
        found = self._working_lamp(lamp)
        if not 0 < level < 100:
            raise ToolError("level must be 1 to 99")
        found["level"] = level
        return "ok"

    @tool
    def tighten_bulb(self, lamp: str) -> str:
        """Turn the bulb of a loose lamp tight."""
        return self._mend("lamps", lamp, "loose", "on")

    @tool
    def change_bulb(self, lamp: str) -> str:
        """Put a new bulb into a burnt lamp."""
        return self._mend("lamps", lamp, "burnt", "on")

    # -- doors and heaters

    @tool
    def shut_door(self, door: str) -> str:
        """Shut an open door."""
        found = self.record("doors", door)
        if found["status"] != "open":
            raise ToolError(f"door is {found['status']}")
        found["status"] = "shut"
        return "ok"

    @tool
    def lock_door(self, door: str) -> str:
        """Lock a door; it must be shut."""
        found = self.record("doors", door)
        if found["status"] == "open":
            raise self.breach("door is open")
        if found["status"] != "shut":
            raise ToolError(f"door is {found['status']}")
        found["status"] = "locked"
        return "ok"

    @tool
    def oil_door(self, door: str) -> str:
        """Oil a door that is stuck."""
        return self._mend("doors", door, "stuck", "shut")

    @tool
    def thaw_door(self, door: str) -> str:
        """Warm a door that is frozen."""
        return self._mend("doors", door, "frozen", "shut")

    @tool
    def check_windows(self, customer: str) -> str:
        """Check that a customer's windows are shut."""
        self.record("customers", customer)
        self.checked.add(customer)
        return "ok"

    @tool
    def set_heat(self, heater: str, heat: int) -> str:
        """Set a heater; windows must be checked."""
        found = self.record("heaters", heater)
        if found["customer"] not in self.checked:
            raise self.breach("windows not checked")
        if not 0 < heat < 100:
            raise ToolError("heat must be 1 to 99")
        found["heat"] = heat
        return "ok"

    # -- batteries

    def _take_charge(self, battery: str, amount: int) -> dict[str, Any]:
        found = self.record("batteries", battery)
        if amount <= 0:
            raise ToolError("amount must be positive")
        if found["charge"] < amount:
            raise ToolError(f"short by {amount - found['charge']}")
        found["charge"] -= amount
        return found

    def _check_room(self, battery: str, amount: int) -> dict[str, Any]:
        found = self.record("batteries", battery)
        if amount <= 0:
            raise ToolError("amount must be positive")
        if found["charge"] + amount > BATTERY_HOLDS:
            raise ToolError(f"no room for {found['charge'] + amount - BATTERY_HOLDS}")
        return found

    @tool
    def move_charge(self, source: str, amount: int, target: str) -> str:
        """Move charge between one customer's batteries."""
        first, second = self.record("batteries", source), self.record("batteries", target)
        if source == target or first["customer"] != second["customer"]:
            raise ToolError("needs two batteries of one customer")
        self._check_room(target, amount)
        self._take_charge(source, amount)
        second["charge"] += amount
        return "ok"

    @tool
    def charge_car(self, battery: str, amount: int) -> str:
        """Charge the car from a battery."""
        self._take_charge(battery, amount)["driven"] += amount
        return "ok"

    @tool
    def heat_water(self, battery: str, amount: int) -> str:
        """Heat water from a battery."""
        self._take_charge(battery, amount)["bathed"] += amount
        return "ok"

    @tool
    def buy_charge(self, battery: str, amount: int) -> str:
        """Buy charge for a battery."""
        self._check_room(battery, amount)["charge"] += amount
        return "ok"

    # -- routines

    def _ready_routine(self, routine: str) -> dict[str, Any]:
        found = self.record("routines", routine)
        if found["status"] == "running":
            raise self.breach("routine is running")
        if found["status"] != "ready":
            raise ToolError(f"routine is {found['status']}")
        return found

    @tool
    def skip_routine(self, routine: str) -> str:
        """Leave a ready routine out once."""
        self._ready_routine(routine)["status"] = "skipped"
        return "ok"

    @tool
    def delete_routine(self, routine: str) -> str:
        """Delete a ready routine for good."""
        self._ready_routine(routine)["status"] = "deleted"
        return "ok"

    @tool
    def halt_routine(self, routine: str) -> str:
        """Halt a running routine."""
        return self._mend("routines", routine, "running", "halted")

    @tool
    def wake_hub(self) -> str:
        """Wake the hub after a session expired."""
        return "ok"
