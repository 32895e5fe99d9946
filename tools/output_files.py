"""Files that the tools write. What speaks against one is said before anything runs, not hours later; what is written is there as
a whole or not at all; and nothing but plain files is ever replaced."""
import errno
import os
import stat
import tempfile


def other_than_a_file(path: str) -> str:
    """What stands there instead of a plain file, in words; empty if nothing does. Links are followed."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return ""
    return "" if stat.S_ISREG(mode) else "is a folder" if stat.S_ISDIR(mode) else "is no plain file"


def refusal(path: str) -> str:
    """Why this cannot be written, in a line; empty if it can. It tries what `write` does, since a folder's mode does not say all."""
    if not path:
        return "a file without a name"
    try:
        if other := other_than_a_file(path):
            return f"{path} {other}"
        if os.path.exists(path) and not os.access(path, os.W_OK):
            return f"{path} is not to be written to"
        os.stat(os.path.dirname(path) or ".")  # realpath takes nowhere/.. for a folder
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(os.path.realpath(path))):
            return ""
    except OSError as error:
        return f"{path}: there is no such folder, or it cannot be written to ({error.strerror})"


def mode_for(target: str) -> int:
    """That of the file which is replaced, or what a new one gets from any program."""
    try:
        return stat.S_IMODE(os.stat(target).st_mode)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def write(path: str, text: str):
    """A run that is killed leaves the last whole file. Where a link leads, there it is written."""
    if other := other_than_a_file(path):
        raise OSError(errno.EINVAL, f"it {other}", str(path))
    target = os.path.realpath(path)
    handle, new = tempfile.mkstemp(dir=os.path.dirname(target))
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.chmod(new, mode_for(target))
        os.replace(new, target)
    except BaseException:  # also where the time is up
        os.unlink(new)
        raise
