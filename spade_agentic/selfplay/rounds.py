"""A round: what one regeneration produces.

The curriculum chooses a skill for every slot; each slot gets up to ``attempts`` drafts, one after the other, all empty
slots at once; every draft goes through the gates; an admitted one gets its hint. The pool is not touched here: the round
hands back what it made, and the loop swaps when all of it is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field

from spade_agentic.errors import ContextOverflow
from spade_agentic.hooks.answers import check_draft, check_hint, check_samples, check_skills
from spade_agentic.hooks.kinds import Curriculum, Designer, DesignRequest, HintWriter, MemoryEntry, MemoryStore
from spade_agentic.hooks.records import Draft, Environment, GateReport, Program, Refusal, Role, Sampling, Skill
from spade_agentic.rollout.runner import RolloutRunner
from spade_agentic.rollout.scheduler import Job
from spade_agentic.rollout.seeding import stable_seed
from spade_agentic.rollout.session import Ticket

__all__ = ["DUPLICATE_GATE", "Gates", "Round", "RoundMaker"]

Gates = Callable[[Program, Callable[[str], bool]], Awaitable[GateReport]]
"""Checks one program; the second argument says whether a canonical hash is known already."""

DUPLICATE_GATE = "duplicate"


@dataclass(slots=True)
class Round:
    """``drafts`` holds every draft in the order (attempt, slot), refused ones too; ``environments`` the admitted, by slot."""

    index: int
    skills: list[Skill]
    drafts: list[Draft] = field(default_factory=list)
    environments: dict[int, Environment] = field(default_factory=dict)

    @property
    def refused(self) -> list[Draft]:
        return [draft for draft in self.drafts if draft.refusal is not None]

    @property
    def without_hint(self) -> int:
        return sum(environment.hint is None for environment in self.environments.values())


@dataclass(slots=True)
class RoundMaker:
    """Makes rounds. Everything random in one is keyed by the run's seed and the draft's id."""

    runner: RolloutRunner
    designer: Designer
    hint_writer: HintWriter
    curriculum: Curriculum
    memory: MemoryStore
    gates: Gates
    slots: int
    attempts: int
    designer_sampling: Sampling
    hint_sampling: Sampling

    async def make(self, index: int, known: Collection[str]) -> Round:
        """Draft, check and hint until every slot is filled or out of attempts.

        ``known`` holds canonical hashes that count as duplicates. Rejected drafts are remembered too.
        """
        skills = check_skills(self.curriculum, self.curriculum.skills(index, self.slots), self.slots)
        made = Round(index, skills)
        for attempt in range(self.attempts):
            open_slots = [slot for slot in range(self.slots) if slot not in made.environments]
            if not open_slots:
                break
            requests = [self._request(index, slot, attempt, skills[slot]) for slot in open_slots]
            drafts = await self._draft(f"r{index}a{attempt}-design", requests)
            reports = await asyncio.gather(*(self._check(draft, known, made) for draft in drafts))
            self._admit(made, drafts, reports)
        hints = await self._hints(f"r{index}-hint", list(made.environments.values()))
        for environment, hint in zip(made.environments.values(), hints, strict=True):
            environment.hint = hint
        for draft in made.drafts:
            self.memory.add(
                MemoryEntry(
                    draft_id=draft.draft_id, skill=draft.skill, source=draft.text, win_rate=None, regret=None,
                    admitted=draft.refusal is None, round_index=index,
                )
            )
        return made

    def _request(self, index: int, slot: int, attempt: int, skill: Skill) -> DesignRequest:
        draft_id = f"r{index}s{slot}a{attempt}"
        seed = stable_seed(self.runner.run_seed, "draft", draft_id)
        drawn = self.memory.sample(skill, seed=stable_seed(self.runner.run_seed, "memory", draft_id))
        seeds, counter_example = check_samples(self.memory, drawn)
        return DesignRequest(
            draft_id=draft_id, skill=skill, round_index=index, slot=slot, attempt=attempt, seed=seed,
            seeds=seeds, counter_example=counter_example,
        )

    async def _draft(self, name: str, requests: Sequence[DesignRequest]) -> list[Draft]:
        def job(request: DesignRequest) -> Job[Draft]:
            async def run(ticket: Ticket) -> Draft:
                session = self.runner.session(
                    Role.DESIGNER, self.designer_sampling, noise=("draft", request.draft_id), request_id=request.draft_id,
                    ticket=ticket,
                )
                try:
                    draft = await self.designer.design(request, session)
                except ContextOverflow as error:
                    return Draft(
                        request.draft_id, request.skill, request.round_index, request.slot, request.attempt,
                        trajectory=session.trajectory, text="", refusal=Refusal("design", "context_overflow", str(error)),
                    )
                return check_draft(self.designer, draft, request.draft_id)

            return Job(request.draft_id, run)

        return [draft for [draft] in await self.runner.scheduler.run(name, [[job(r)] for r in requests])]

    async def _check(self, draft: Draft, known: Collection[str], made: Round) -> GateReport | None:
        if draft.refusal is not None or draft.program is None:
            return None
        admitted = {environment.program.canonical_hash for environment in made.environments.values()}
        return await self.gates(draft.program, lambda name: name in known or name in admitted)

    def _admit(self, made: Round, drafts: Sequence[Draft], reports: Sequence[GateReport | None]) -> None:
        """Admit in the order of slots, so that of two equal drafts of one attempt the first slot's stays."""
        hashes = {environment.program.canonical_hash for environment in made.environments.values()}
        for draft, report in zip(drafts, reports, strict=True):
            made.drafts.append(draft)
            if draft.program is None:
                draft.refusal = draft.refusal or Refusal("design", "no_program")
            elif report is not None and report.refusal is not None:
                draft.refusal = report.refusal
            elif draft.refusal is None and draft.program.canonical_hash in hashes:
                draft.refusal = Refusal(DUPLICATE_GATE, "duplicate", "another slot of this round made the same")
            if draft.refusal is not None:
                continue
            assert draft.program is not None
            assert report is not None
            hashes.add(draft.program.canonical_hash)
            made.environments[draft.slot] = Environment(
                env_id=f"r{made.index}s{draft.slot}", program=draft.program, round_index=made.index, slot=draft.slot,
                draft_id=draft.draft_id, max_turns=report.max_turns,
            )

    async def _hints(self, name: str, environments: Sequence[Environment]) -> list[str | None]:
        programs = [(environment.env_id, environment.program) for environment in environments]
        return await self.write_hints(name, programs)

    async def write_hints(self, name: str, programs: Sequence[tuple[str, Program]]) -> list[str | None]:
        """The hint of every (id, program); ``None`` where none could be written. Its tokens enter no loss."""

        def job(env_id: str, program: Program) -> Job[str | None]:
            async def run(ticket: Ticket) -> str | None:
                session = self.runner.session(
                    Role.DESIGNER, self.hint_sampling, noise=("hint", env_id), request_id=f"{env_id}-hint", ticket=ticket
                )
                seed = stable_seed(self.runner.run_seed, "hint", env_id)
                try:
                    hint = await self.hint_writer.write(program, session, seed=seed)
                except ContextOverflow:
                    return None
                return check_hint(self.hint_writer, hint)

            return Job(f"{env_id}-hint", run)

        return [hint for [hint] in await self.runner.scheduler.run(name, [[job(e, p)] for e, p in programs])]
