"""What a declaration's own rules refuse: the exact text."""

from __future__ import annotations

import pytest

from hq.app.declaration import ImageFile
from hq.app.validate import load_toml
from hq.model.errors import UsageError

IMAGE = 'schema = "hq.image/1"\nname = "demo"\nprefix = {path}\n'
LAUNCH = 'schema = "hq.image/1"\nname = "demo"\nprefix = "/x"\n[launch.files]\n{path} = "a"\n'
VOLUME = 'schema = "hq.image/1"\nname = "demo"\nprefix = "/x"\nconfig.volumes = [{path}]\n'
ABSOLUTE = "expected an absolute path in the image without '..' or a final '/'"
KERNEL = "a container has a file system of the kernel there"


def quoted(path: str) -> str:
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in path) + '"'


def message(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        load_toml("images/demo.toml", text.encode(), ImageFile)
    first, second = caught.value.render().split("\n")
    assert first == "error: images/demo.toml has one mistake"
    return second.removeprefix("  images/demo.toml:")


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/", ABSOLUTE),
        ("opt", ABSOLUTE),
        ("/opt/", ABSOLUTE),
        ("/opt/../etc", ABSOLUTE),
        ("/opt/a\nb", "a control character in the path"),
        ("/opt/a\x7fb", "a control character in the path"),
        ("/opt/a\u0085b", "a control character in the path"),
        ("/opt/a\u202eb", "a control character in the path"),
        ("/opt/" + "n" * 256, "a part of the path has 256 bytes; at most 255 are possible"),
        ("/opt/" + "\u00e9" * 128, "a part of the path has 256 bytes; at most 255 are possible"),
        ("/abc" * 1001, "the path has 4004 bytes; at most 4000 are taken"),
        ("/proc", f"nothing can be kept in /proc: {KERNEL}"),
        ("/sys/fs", f"nothing can be kept in /sys: {KERNEL}"),
        ("/dev/shm", f"nothing can be kept in /dev: {KERNEL}"),
    ],
)
def test_a_path_that_no_image_can_have(path: str, problem: str) -> None:
    assert message(IMAGE.format(path=quoted(path))) == f"3: prefix: {problem}"
    assert message(LAUNCH.format(path=quoted(path))).endswith(f": {problem}")


@pytest.mark.parametrize(
    "path", ["/opt", "/processes/a", "/a/dev", "/" + "n" * 255, "/abc" * 1000, "/\u00e9 \U0001f600"]
)
def test_a_path_that_an_image_can_have(path: str) -> None:
    assert load_toml("x", IMAGE.format(path=quoted(path)).encode(), ImageFile).prefix == path


def test_a_volume_may_lie_over_what_the_kernel_has() -> None:
    text = VOLUME.format(path='"/dev/shm"')
    assert load_toml("x", text.encode(), ImageFile).config.volumes == ("/dev/shm",)
    assert message(VOLUME.format(path='"shm"')) == f"4: config.volumes[0]: {ABSOLUTE}"
