"""A session on the side: the same project and store, with other files, or with writes kept apart.

Rebuilding to compare and building what must fail both need what is in the store and must leave
nothing there. They write into a scratch store, a folder inside the real one that goes away
afterwards, and keep results in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from hq.app.session import Session, Settings
from hq.app.sources import ProjectSources
from hq.model.action import ActionResult
from hq.model.digest import ActionKey, BlobRef
from hq.model.ports import ActionCache, BlobStore, BlobWriter, RandomAccess
from hq.store.disk import DiskStore
from hq.wheels.index import WheelIndex


class ScratchStore:
    """``hq.model.ports.BlobStore``: reads from both, writes into ``scratch`` only."""

    def __init__(self, base: BlobStore, scratch: BlobStore) -> None:
        self._base = base
        self._scratch = scratch

    def has(self, ref: BlobRef) -> bool:
        """Whether one of them has it."""
        return self._scratch.has(ref) or self._base.has(ref)

    def read(self, ref: BlobRef) -> bytes:
        """The blob, verified. Raises ``BlobMissing``."""
        return self._place(ref).read(ref)

    def open(self, ref: BlobRef) -> AbstractContextManager[RandomAccess]:
        """The blob for reading in parts. Raises ``BlobMissing``."""
        return self._place(ref).open(ref)

    def put(self, data: bytes) -> BlobRef:
        """Stores ``data`` in the scratch store."""
        return self._scratch.put(data)

    def create(self) -> AbstractContextManager[BlobWriter]:
        """A new blob of the scratch store."""
        return self._scratch.create()

    def _place(self, ref: BlobRef) -> BlobStore:
        return self._scratch if self._scratch.has(ref) else self._base


class ScratchActions:
    """``hq.model.ports.ActionCache``: new results stay in memory.

    ``is_blind``: results in ``base`` are not seen, so everything runs once more.
    """

    def __init__(self, base: ActionCache, *, is_blind: bool = False) -> None:
        self._base = base
        self._is_blind = is_blind
        self._made: dict[ActionKey, ActionResult] = {}

    def get(self, key: ActionKey) -> ActionResult | None:
        """The result, or ``None``."""
        found = self._made.get(key)
        return found if found is not None or self._is_blind else self._base.get(key)

    def put(self, result: ActionResult) -> None:
        """Remembers the result until the end of this process."""
        self._made[result.key] = result

    def lock(self, key: ActionKey) -> AbstractContextManager[None]:
        """As the real cache does."""
        return self._base.lock(key)


@contextmanager
def scratch_store(session: Session) -> Iterator[ScratchStore]:
    """A scratch store over the session's; what it holds is gone at the end of the block."""
    with session.disk.staging() as folder, DiskStore(f"{folder}/scratch") as scratch:
        yield ScratchStore(session.disk, scratch)


class DerivedSession(Session):
    """Another session's, which stays open and in charge, with other files or another store."""

    def __init__(
        self,
        base: Session,
        *,
        sources: ProjectSources | None = None,
        store: BlobStore | None = None,
        settings: Settings | None = None,
    ) -> None:
        # Not super().__init__: that would open the store a second time.
        self.__dict__ |= vars(base)
        self._store = store or base.store
        if settings is not None:
            self.settings = settings
        if sources is not None:
            self.sources = sources
        self._indexes = {}

    @property
    def store(self) -> BlobStore:
        """Where rules read and write."""
        return self._store

    def index(self, ref: BlobRef) -> WheelIndex:
        """A wheel's index, decoded once."""
        index = self._indexes.get(ref)
        if index is None:
            index = self._indexes[ref] = WheelIndex.decode(self._store.read(ref))
        return index
