"""Chooses the account that runs the private PostgreSQL: PostgreSQL refuses root, so root steps
down.

Answers for the account and for the command prefix that turns our child into it. It must not know
what is run with it. Three ways down, the first that works is taken:

1. an unprivileged account (the owner of an existing cluster, else postgres or nobody);
2. the same account with CAP_DAC_OVERRIDE alone, where the code or the data lies below a closed
   folder (/root is 0700 as a rule) which that account could not pass;
3. a user namespace, in which our own files belong to an unprivileged id.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.postgres.binaries import Binaries
from gateway.postgres.errors import EmbeddedPostgresError

_PR_SET_PDEATHSIG: Final = 1
_PROBE_SECONDS: Final = 30
_ACCOUNTS: Final = ("postgres", "nobody")

# no_setuid_fixup: initdb and postgres look for each other with access(2), which asks for the
# capabilities of the real user and would find them dropped.
_KEEP_DAC_OVERRIDE: Final = (
    "--inh-caps",
    "+dac_override",
    "--ambient-caps",
    "+dac_override",
    "--securebits",
    "+no_setuid_fixup",
)


@dataclass(frozen=True, slots=True)
class Account:
    """An account that PostgreSQL accepts: how to start a process as it, and the owner of its
    files."""

    description: str
    prefix: tuple[str, ...] = ()
    owner: tuple[int, int] | None = None
    preexec: Callable[[], None] | None = None

    def command(self, *arguments: str | Path) -> list[str]:
        return [*self.prefix, *(str(argument) for argument in arguments)]

    def give(self, path: Path, mode: int) -> None:
        """Hands a file or folder to the account."""
        if self.owner is not None:
            os.chown(path, *self.owner)
        path.chmod(mode)


def choose_account(binaries: Binaries, cluster: Path) -> Account:
    """Chooses the account for a cluster that may not exist yet; its parent folder must."""
    if os.geteuid() != 0:
        return _own_account()
    ids = _step_down_ids(cluster)
    for uid, gid in ids:
        account = _plain_account(uid, gid, binaries, cluster)
        if account is not None:
            return account
    for uid, gid in ids:
        account = _account_that_passes_closed_folders(uid, gid)
        if _works(account, binaries, cluster):
            return account
    account = _namespace_account(ids)
    if account is not None and _works(account, binaries, cluster):
        return account
    raise EmbeddedPostgresError(
        f"PostgreSQL refuses to run as root, and no way down works here: start the gateway as "
        f"another user, or make {binaries.bin_dir} and {cluster.parent} passable for others "
        "(chmod o+x on each folder above them), or set database.url to a server of your own"
    )


def _own_account() -> Account:
    """Makes the account of a gateway that is not root: the server is an ordinary child of ours."""
    if _has_setpriv():
        return Account("this user", ("setpriv", "--pdeathsig", "INT"))
    return Account("this user", preexec=_die_with_parent)


def _step_down_ids(cluster: Path) -> list[tuple[int, int]]:
    """Lists user and group ids to try: the owner of the cluster goes on with it; a new one gets the
    first account there is."""
    if cluster.exists():
        facts = cluster.stat()
        if facts.st_uid != 0:
            return [(facts.st_uid, facts.st_gid)]
    found = []
    for name in _ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        found.append((entry.pw_uid, entry.pw_gid))
    return found


def _plain_account(uid: int, gid: int, binaries: Binaries, cluster: Path) -> Account | None:
    if not (_passable_for_others(binaries.bin_dir) and _passable_for_others(cluster.parent)):
        return None
    if not _has_setpriv():
        return Account(f"user id {uid}", owner=(uid, gid), preexec=lambda: _become(uid, gid))
    account = Account(f"user id {uid}", _setpriv(uid, gid), (uid, gid))
    return account if _works(account, binaries, cluster) else None


def _account_that_passes_closed_folders(uid: int, gid: int) -> Account:
    prefix = _setpriv(uid, gid, *_KEEP_DAC_OVERRIDE)
    return Account(f"user id {uid} with CAP_DAC_OVERRIDE", prefix, (uid, gid))


def _namespace_account(ids: list[tuple[int, int]]) -> Account | None:
    """Makes an account in a user namespace, in which root's files belong to an id that has a name:
    initdb looks it up."""
    if shutil.which("unshare") is None or not ids:
        return None
    uid, gid = ids[0]
    prefix = ("unshare", "--user", f"--map-user={uid}", f"--map-group={gid}")
    if _has_setpriv():
        return Account("a user namespace", (*prefix, "setpriv", "--pdeathsig", "INT"))
    return Account("a user namespace", prefix, preexec=_die_with_parent)


def _setpriv(uid: int, gid: int, *options: str) -> tuple[str, ...]:
    """Makes the setpriv command. It asks for the parent-death signal last: a change of credentials
    clears it."""
    drop = (f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--pdeathsig", "INT")
    return ("setpriv", *options, *drop)


def _has_setpriv() -> bool:
    return shutil.which("setpriv") is not None


def _works(account: Account, binaries: Binaries, cluster: Path) -> bool:
    """Tries an account: it must execute the server and reach the folder of the data."""
    script = '"$1" --version && cd "$2"'
    probe = account.command("sh", "-c", script, "sh", binaries.postgres, cluster.parent)
    try:
        done = subprocess.run(
            probe, capture_output=True, timeout=_PROBE_SECONDS, check=False, cwd="/"
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _passable_for_others(folder: Path) -> bool:
    resolved = folder.resolve()
    return all(path.stat().st_mode & stat.S_IXOTH for path in (resolved, *resolved.parents))


def _die_with_parent() -> None:
    """Asks the kernel for a fast shutdown when the gateway is killed, rather than an orphan."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def _become(uid: int, gid: int) -> None:
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    _die_with_parent()
