"""The keys in memory: finds the key of a token, and checks whether its rates allow a request."""

import asyncio
import enum
import hmac
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import structlog
from pydantic import SecretStr

from service import executors
from service.keys import file
from service.keys.file import EVERYTHING, KeyEntry, KeysError, Rights

# the allowance of a key after a rest, in seconds of its rate
BURST_SECONDS = 10.0
# a rate that is never reached: keys with and without a limit take the same steps
UNLIMITED = 1e18


class Bucket:
    """A token bucket with possible debt, for costs that are known only afterwards.

    Args:
        rate: units a second.

    Attributes:
        taken: units that were taken, without those that came back.
    """

    def __init__(
        self, rate: float, clock: Callable[[], float] = time.monotonic, taken: float = 0.0
    ) -> None:
        self.rate = rate
        self.taken = taken
        self._clock = clock
        self._most = max(1.0, BURST_SECONDS * rate)
        self._level = self._most
        self._filled_at = clock()

    def wait(self, least: float) -> float:
        """Seconds until the bucket holds ``least`` units; 0 if it does now."""
        now = self._clock()
        self._level = min(self._most, self._level + (now - self._filled_at) * self.rate)
        self._filled_at = now
        return max(0.0, (least - self._level) / self.rate)

    def take(self, units: float) -> None:
        """Take units out, even more than the bucket holds."""
        self._level -= units
        self.taken += units


log = structlog.get_logger("docsplit")

RELOAD_SECONDS = 1.0
# seconds since the epoch
_YEAR_10000 = 253_402_300_800.0


class Refusal(enum.StrEnum):
    """The reason why a request is refused."""

    MISSING = "missing"
    UNKNOWN = "unknown"
    REVOKED = "revoked"
    EXPIRED = "expired"
    RATE = "rate"


@dataclass(frozen=True, slots=True)
class Key:
    """An API key.

    Attributes:
        digest: SHA-256 of the token.
        expires: seconds since the epoch.
        requests: admits requests.
        tokens: charged with the tokens of a request before they are computed.
    """

    name: str
    digest: bytes
    rights: Rights
    expires: float
    revoked: bool
    requests: Bucket
    tokens: Bucket


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about a token.

    Attributes:
        key: of that token; an empty key if the token is unknown.
        refusal: None if the request may continue.
        wait: seconds until the key's rates allow a request.
    """

    key: Key
    refusal: Refusal | None
    wait: float


class Keyring:
    """All accepted keys.

    Args:
        plain: tokens from the settings; their names are their positions.
        path: the keys' file, or None.
        now: seconds since the epoch.

    Attributes:
        stale: whether the current file is invalid, so that the former keys stay valid.

    Raises:
        KeysError: the file is invalid.
    """

    def __init__(
        self,
        plain: Sequence[SecretStr] = (),
        path: Path | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._now = now
        self._plain = [_unbounded(str(position), token) for position, token in enumerate(plain)]
        self._keys = [_nobody(), *self._plain]
        self.required = bool(plain) or path is not None
        self.stale = False
        self._seen: tuple[int, ...] | None = None
        if path is not None:
            self._seen = _signature(path)
            self._take(file.read(path))

    def check(self, token: bytes) -> Verdict:
        """Find the key of a token and check its rates; an admitted request is counted.

        Every token takes the same steps: the service hashes it, compares it with every key in
        constant time, and checks rates. So the time reveals nothing about the keys.
        """
        offered = file.digest(token)
        keys = self._keys
        matches = [hmac.compare_digest(offered, key.digest) for key in keys]
        key = keys[max(position * match for position, match in enumerate(matches))]
        wait = max(key.requests.wait(1.0), key.tokens.wait(0.0))
        # the first reason that holds is reported
        refusals = (
            (not token, Refusal.MISSING),
            (key is keys[0], Refusal.UNKNOWN),
            (key.revoked, Refusal.REVOKED),
            (key.expires <= self._now(), Refusal.EXPIRED),
            (wait > 0, Refusal.RATE),
        )
        held = [refusal for holds, refusal in refusals if holds]
        key.requests.take(float(not held))
        return Verdict(key, held[0] if held else None, wait)

    def all(self) -> list[Key]:
        """All keys, those of the settings first."""
        return self._keys[1:]

    def reload(self) -> None:
        """Read the keys' file again if it has changed; an invalid file changes nothing."""
        if self._path is None or (signature := _signature(self._path)) == self._seen:
            return
        self._seen = signature
        try:
            entries = file.read(self._path)
        except KeysError as error:
            log.error("keys_unusable", reason=str(error))
            self.stale = True
            return
        self.stale = False
        self._take(entries)
        log.info("keys_read", keys=len(entries))

    async def watch(self) -> None:
        """Check the file for changes every second, until cancelled."""
        while self._path is not None:
            await asyncio.sleep(RELOAD_SECONDS)
            await executors.KEYS.run(self.reload)

    def _take(self, entries: dict[str, KeyEntry]) -> None:
        former = {key.name: key for key in self._keys}
        named = [_key(name, entry, former.get(name)) for name, entry in entries.items()]
        self._keys = [_nobody(), *self._plain, *named]


def _nobody() -> Key:
    # stands in for a missing key, so that an unknown token takes the same steps
    return Key("", bytes(32), Rights({}), math.inf, False, Bucket(UNLIMITED), Bucket(UNLIMITED))


def _unbounded(name: str, token: SecretStr) -> Key:
    digest = file.digest(token.get_secret_value().encode())
    return Key(name, digest, EVERYTHING, math.inf, False, Bucket(UNLIMITED), Bucket(UNLIMITED))


def _key(name: str, entry: KeyEntry, former: Key | None) -> Key:
    return Key(
        name=name,
        digest=bytes.fromhex(entry.sha256),
        rights=entry.rights,
        expires=_expiry(entry.expires),
        revoked=entry.revoked,
        requests=_bucket(entry.requests_per_second, None if former is None else former.requests),
        tokens=_bucket(entry.tokens_per_second, None if former is None else former.tokens),
    )


def _expiry(given: datetime | None) -> float:
    """Seconds since the epoch that are a date in UTC again, or infinity for never."""
    seconds = math.inf if given is None else max(0.0, given.timestamp())
    # the last date, written in a western time zone or rounded, is past the last year
    return seconds if seconds < _YEAR_10000 else math.inf


def _bucket(rate: float | None, former: Bucket | None) -> Bucket:
    """A bucket of that rate; the former one with its debt if the rate is the same."""
    wanted = UNLIMITED if rate is None else rate
    if former is None:
        return Bucket(wanted)
    return former if former.rate == wanted else Bucket(wanted, taken=former.taken)


def _signature(path: Path) -> tuple[int, ...] | None:
    """A value that differs between versions of a file; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev
