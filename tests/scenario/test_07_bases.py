"""Images on a base: Debian packages through a real apt, and images of a layout."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.aptrepo import AptRepo
from helpers.debmaker import Member, control, deb, folder, hard_link, symlink
from helpers.fakeregistry import fake_registry
from helpers.project import SampleProject
from helpers.registry import real_registry
from helpers.unpack import blob, document, manifest
from hq.model.digest import Digest
from hq.oci.layout import check_layout
from hq.store.disk import DiskStore

pytestmark = pytest.mark.system

PACKAGES: dict[str, list[Member]] = {
    "base-files": [
        symlink("./bin", "usr/bin"),
        folder("./tmp", mode=0o1777),
        folder("./root", mode=0o700),
        Member("./usr/share/base-files/motd", b"hello\n"),
    ],
    "base-passwd": [
        Member("./usr/share/base-passwd/passwd.master", b"root:*:0:0::/root:/bin/sh\n")
    ],
    "perl": [
        Member("./usr/bin/perl", b"perl " * 900, mode=0o755),
        hard_link("./usr/bin/perl5", "./usr/bin/perl"),
    ],
    "login": [
        Member("./bin/su", b"su", mode=0o4755),
        Member("./usr/sbin/unix", b"x", mode=0o2755, gid=42),
    ],
}


class Debian:
    """A project on a base of small packages."""

    def __init__(self, folder: Path, compression: str = "gzip") -> None:
        self.repo = AptRepo(folder)
        self.project = SampleProject(folder)
        self.project.supply()
        self.held = dict(PACKAGES)
        self.version = dict.fromkeys(self.held, "1.0")
        self.publish()
        self.image('base = { debian = "lockfiles/base-small.toml" }', compression=compression)

    def publish(self, order: random.Random | None = None) -> None:
        """Puts the packages into the archive and locks them."""
        debs = {
            name: self.repo.add(
                name,
                self.version[name],
                data=deb(members, text=control(name, self.version[name])),
            )
            for name, members in self.held.items()
        }
        self.repo.publish()
        names = list(debs)
        if order:
            order.shuffle(names)
        self.lock({name: debs[name] for name in names})

    def lock(self, debs: dict[str, bytes], architecture: str = "amd64") -> None:
        """Writes the base lock."""
        rows = [
            f'\n[[package]]\nname = "{name}"\nversion = "{self.version[name]}"\n'
            f'architecture = "amd64"\nfile = "{name}_{self.version[name]}_amd64.deb"\n'
            f'sha256 = "{Digest.of(data).hex}"\nsize = {len(data)}\n'
            for name, data in debs.items()
        ]
        head = f'schema = "hq.base-lock/1"\nsuite = "trixie"\narchitecture = "{architecture}"\n'
        self.project.write("lockfiles/base-small.toml", head + "".join(rows))

    def image(
        self, base: str, *, config: str = "", compression: str = "gzip", more: str = ""
    ) -> None:
        """Writes the image file."""
        self.project.write(
            "images/demo.toml",
            f'schema = "hq.image/1"\nname = "demo"\nprefix = "/opt/demo"\n{base}\n'
            f'compression = "{compression}"\n{more}[config]\n{config}\n',
        )

    def build(self, *arguments: str) -> dict[str, Any]:
        return self.project.build(*arguments, env=dict(self.repo.environment))

    def error(self, *arguments: str) -> tuple[int, str]:
        """Exit code and message of a build that fails."""
        done = self.project.run("build", *arguments, env=dict(self.repo.environment))
        lines = done.stderr.splitlines(keepends=True)
        return done.returncode, "".join(line for line in lines if not line.startswith("built "))


@pytest.fixture
def debian(tmp_path: Path) -> Debian:
    return Debian(tmp_path)


def base_entries(layout: Path) -> dict[str, tarfile.TarInfo]:
    """The entries of the base's layers, later ones over earlier ones."""
    found: dict[str, tarfile.TarInfo] = {}
    config = document(layout, manifest(layout)["config"]["digest"])
    for row, history in zip(manifest(layout)["layers"], config["history"], strict=True):
        if "base-" in history["created_by"]:
            data = blob(layout, row["digest"]).read_bytes()
            with tarfile.open(fileobj=io.BytesIO(data)) as opened:
                found |= {member.name: member for member in opened}
    return found


def problems(layout: Path) -> list[object]:
    def read(path: str) -> bytes | None:
        place = layout / path
        return place.read_bytes() if place.is_file() else None

    return list(check_layout(read))


def test_the_base_stands_below_the_package(debian: Debian) -> None:
    report = debian.build()
    layout = debian.project.layout()
    assert problems(layout) == []
    found = base_entries(layout)
    assert (found["tmp"].mode, found["root"].mode) == (0o1777, 0o700)
    assert found["bin"].linkname == "usr/bin"
    assert (found["usr/bin/su"].mode, found["usr/sbin/unix"].gid) == (0o4755, 42)
    assert found["usr/bin/perl5"].islnk()
    assert found["usr/bin/perl5"].linkname == "usr/bin/perl"
    assert {"etc/passwd", "etc/motd", "var/lib/dpkg/status", "run/lock"} <= found.keys()
    assert {member.mtime for member in found.values()} == {0}
    config = document(layout, manifest(layout)["config"]["digest"])
    assert config["config"]["Env"] == [
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    ]
    names = [entry["created_by"] for entry in config["history"]]
    stages = ("base-state", "wheel", "series", "envs", "over")
    assert names[-5:] == [f"hq layer {stage}" for stage in stages]
    assert "deb:small/perl" in report["built"]


def test_a_commit_holds_an_image_on_packages(debian: Debian) -> None:
    root = debian.project.root
    git = ["git", "-C", str(root), "-c", "user.name=x", "-c", "user.email=x@x"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *command], check=True)
    debian.build()
    with fake_registry() as registry:
        done = debian.project.run("push", "demo", f"{registry.host}/r")
        assert (done.returncode, "no commit holds" in done.stderr) == (0, False), done.stderr
        assert any(tag.startswith("sha-") for _, tag in registry.manifests)


def test_nothing_changed_nothing_runs(debian: Debian) -> None:
    first = debian.build()
    assert debian.build()["built"] == []
    debian.project.write("images/other.txt", "x")
    shutil.rmtree(debian.project.layout())
    again = debian.build()
    assert (again["built"], again["images"]) == ([], first["images"])


def test_a_new_version_of_a_package_rewrites_its_layer_and_the_state(debian: Debian) -> None:
    debian.build()
    debian.held["perl"] = [Member("./usr/bin/perl", b"newer", mode=0o755)]
    debian.version["perl"] = "1.1"
    debian.publish()
    built = debian.build()["built"]
    assert built[:2] == ["deb:small/perl", "base:small"]
    layers = [name for name in built if name.startswith("layer:")]
    assert len(layers) == 2
    assert layers[-1] == "layer:small/base-state"


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_the_lock_and_of_work_changes_nothing(tmp_path: Path, seed: int) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    first = Debian(one)
    second = Debian(two)
    second.publish(random.Random(seed))
    made = [first.build("--jobs", "1")["images"], second.build("--jobs", "4")["images"]]
    assert made[0][0]["manifest"] == made[1][0]["manifest"]


def test_compressions_have_one_content(tmp_path: Path) -> None:
    ids = set()
    for compression in ("gzip", "zstd", "none"):
        made = Debian(tmp_path / compression, compression)
        ids.add(made.build()["images"][0]["image_id"])
        assert problems(made.project.layout()) == []
    assert len(ids) == 1


def test_an_altered_package_is_not_taken(debian: Debian) -> None:
    debian.project.replace(
        "lockfiles/base-small.toml",
        Digest.of(deb(PACKAGES["perl"], text=control("perl"))).hex,
        "0" * 64,
    )
    size = len(deb(PACKAGES["perl"], text=control("perl")))
    assert debian.error("--jobs", "1") == (
        1,
        "error: apt fetched other files than the base small has locked\n"
        "  node: deb:small/base-files\n"
        f"  perl_1.0_amd64.deb ({size} B)\n"
        "  help: the archive has other bytes under the same version; make the base lock again\n",
    )


def test_a_package_under_another_name(debian: Debian) -> None:
    debian.project.replace("lockfiles/base-small.toml", 'name = "perl"', 'name = "ruby"')
    # apt names packages by its lists, the lock by its own; the package itself has the last word.
    with DiskStore(str(debian.project.store)) as store:
        for name, members in PACKAGES.items():
            store.put(deb(members, text=control(name)))
    code, text = debian.error()
    assert code == 1
    assert text == (
        "error: this is perl 1.0 amd64, the lock says ruby 1.0 amd64\n"
        "  at: perl_1.0_amd64.deb\n  node: deb:small/ruby\n  help: make the base lock again\n"
    )


def test_packages_that_do_not_fit_together(debian: Debian) -> None:
    debian.held["evil"] = [Member("./usr/bin/perl", b"evil")]
    debian.version["evil"] = "1.0"
    debian.publish()
    assert debian.error() == (
        1,
        "error: the packages of the base do not fit together\n"
        "  node: base:small\n"
        "  /usr/bin/perl is in evil 1.0 and in perl 1.0\n"
        "  help: lock the base again, from one suite\n",
    )


BAD_BASES = [
    ("base = {}", "base: expected one of { debian = LOCK }"),
    ('base = { debian = "lockfiles/base-small.toml", layout = "x" }', "base: expected one of"),
    ('base = { layout = "x" }', "base: expected one of"),
    ('base = { registry = "x/y", digest = "latest" }', "base.digest"),
    ('base = { debain = "x" }', "base.debain: unknown key"),
    ('base = "debian"', "base: expected"),
    (
        'base = { debian = "lockfiles/none.toml" }',
        "base.debian: there is no file lockfiles/none.toml",
    ),
]


@pytest.mark.parametrize(("base", "message"), BAD_BASES)
def test_a_wrong_base_is_told_with_its_line(debian: Debian, base: str, message: str) -> None:
    debian.image(base)
    code, text = debian.error()
    assert code == 2
    assert f"images/demo.toml:4: {message}" in text
    assert text.count("images/demo.toml:") == 1


def test_a_lock_for_another_architecture(debian: Debian) -> None:
    debian.lock({}, "arm64")
    code, text = debian.error()
    assert (code, text) == (
        2,
        "error: lockfiles/base-small.toml holds no package yet\n  at: images/demo.toml:4\n"
        "  help: run 'hq lock --base small'\n",
    )
    debian.publish()
    debian.project.replace(
        "lockfiles/base-small.toml", 'architecture = "amd64"\n\n', 'architecture = "arm64"\n\n'
    )
    code, text = debian.error()
    assert code == 2
    assert "package[0].architecture: amd64, in a base for arm64" in text


def test_lock_base(debian: Debian) -> None:
    env = dict(debian.repo.environment)
    before = debian.build()["images"]
    text = debian.project.read("lockfiles/base-small.toml")
    head = text.partition("\n[[package]]")[0].replace(
        'suite = "trixie"\n',
        'suite = "trixie"  # ours\npackages = ["perl", "login", "base-passwd"]\n',
    )
    debian.project.write("lockfiles/base-small.toml", head)
    debian.repo.mark_essential("base-files")
    check = debian.project.run("lock", "--base", "small", "--check", env=env)
    assert (check.returncode, debian.project.read("lockfiles/base-small.toml")) == (1, head)
    done = debian.project.run("lock", "--base", "small", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "+ base-files 1.0\n+ base-passwd 1.0\n+ login 1.0\n+ perl 1.0\n"
    assert done.stderr.endswith("lockfiles/base-small.toml: 4 packages, 4 changed\n")
    written = debian.project.read("lockfiles/base-small.toml")
    assert written.startswith(head)
    again = debian.project.run("lock", "--base", "small", "--check", env=env)
    assert (again.returncode, again.stdout) == (0, "")
    assert debian.build()["images"] == before
    assert debian.project.run("lock", "--base", "none").stderr == (
        "error: there is no file lockfiles/base-none.toml\n"
        "  help: write one with schema, suite, architecture and packages; its packages are filled "
        "in\n"
    )


# A layout as base


@pytest.fixture
def layered(debian: Debian, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Builds the Debian image, keeps its layout, and builds an image on it."""
    debian.image(
        'base = { debian = "lockfiles/base-small.toml" }',
        config='env = { A = "1", B = "1" }\nentrypoint = ["/bin/one"]\ncmd = ["x"]\nuser = "1"\n'
        'ports = ["80/tcp"]\nlabels = { a = "1" }\nvolumes = ["/v"]\n',
    )
    debian.build()
    kept = tmp_path / "kept"
    shutil.copytree(debian.project.layout(), kept)

    def build(config: str = "", **changes: str) -> dict[str, Any]:
        digest = changes.get("digest") or _digest(kept)
        debian.image(f'base = {{ layout = "{kept}", manifest = "{digest}" }}', config=config)
        debian.build()
        return document(
            debian.project.layout(), manifest(debian.project.layout())["config"]["digest"]
        )

    return build


def _digest(layout: Path) -> str:
    index = json.loads((layout / "index.json").read_bytes())
    return str(index["manifests"][0]["digest"])


def test_layers_of_a_layout_are_untouched(
    debian: Debian, layered: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    config = layered()
    below, above = manifest(tmp_path / "kept"), manifest(debian.project.layout())
    count = len(below["layers"])
    assert above["layers"][:count] == below["layers"]
    assert len(above["layers"]) == count + 4
    base = document(tmp_path / "kept", below["config"]["digest"])
    assert config["rootfs"]["diff_ids"][:count] == base["rootfs"]["diff_ids"]
    assert config["history"][:count] == base["history"]
    assert problems(debian.project.layout()) == []
    assert above["annotations"]["org.opencontainers.image.base.digest"] == _digest(
        tmp_path / "kept"
    )


def test_the_configuration_is_taken_over(layered: Callable[..., dict[str, Any]]) -> None:
    config = layered('env = { B = "2" }\nlabels = { b = "2" }\nports = ["81/udp"]\n')["config"]
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert config == {
        "Env": ["A=1", "B=2", path],
        "Entrypoint": ["/bin/one"],
        "Cmd": ["x"],
        "User": "1",
        "Labels": {"a": "1", "b": "2"},
        "ExposedPorts": {"80/tcp": {}, "81/udp": {}},
        "Volumes": {"/v": {}},
    }


def test_an_entrypoint_of_one_s_own_drops_the_base_s_command(
    layered: Callable[..., dict[str, Any]],
) -> None:
    config = layered('entrypoint = ["/bin/two"]\n')["config"]
    assert (config["Entrypoint"], "Cmd" in config) == (["/bin/two"], False)


def test_a_layout_that_lacks_a_blob_or_has_a_damaged_one(
    debian: Debian, layered: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    layer = manifest(kept)["layers"][0]
    digest = _digest(kept)
    debian.image(f'base = {{ layout = "{kept}", manifest = "{digest}" }}')
    shutil.rmtree(debian.project.store)
    debian.project.supply()
    path = blob(kept, layer["digest"])
    os.chmod(path, 0o644)
    good = path.read_bytes()
    path.write_bytes(b"x" + good[1:])
    node = f"  node: base:kept@{digest[7:19]}-amd64\n"
    found = Digest.of(b"x" + good[1:])
    assert debian.error() == (
        1,
        "error: a blob of the layout is not what its name or descriptor says\n"
        f"  at: {path}\n{node}  expected: {layer['digest']}\n  found:    {found}\n"
        "  help: the layout is damaged; make it again\n",
    )
    path.unlink()
    assert debian.error() == (
        1,
        f"error: the layout has no blob {layer['digest']}\n  at: {kept}\n{node}"
        "  help: check the folder and the digest in the image's base\n",
    )
    shutil.rmtree(kept)
    assert debian.error()[1].startswith("error: there is no OCI layout\n")


def test_the_same_image_from_a_registry_is_the_same_base(
    debian: Debian, layered: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    layered()
    expected = manifest(debian.project.layout())
    digest = _digest(tmp_path / "kept")
    with real_registry() as registry:
        name = f"{registry.host}/team/base"
        pushed = debian.project.run("push", str(tmp_path / "kept"), name, "--tag", "1")
        assert pushed.returncode == 0, pushed.stderr
        debian.image(f'base = {{ registry = "{name}", digest = "{digest}" }}')
        # Where an image is from is not in the key of its node.
        assert debian.build()["built"] == []
        shutil.rmtree(debian.project.store)
        debian.project.supply()
        code, text = debian.error("--offline")
        assert (code, text) == (
            1,
            f"error: the base {name} is not in the store, and --offline forbids to fetch it\n"
            f"  node: base:base@{digest[7:19]}-amd64\n  digest: {digest}\n"
            "  help: run once without --offline\n",
        )
        debian.build()
        assert manifest(debian.project.layout()) == expected
        wrong = f"sha256:{'0' * 64}"
        debian.image(f'base = {{ registry = "{name}", digest = "{wrong}" }}')
        code, text = debian.error()
        assert (code, text.split("\n")[0]) == (
            2,
            f"error: there is no image {name}@{wrong}",
        )


def test_a_base_for_another_platform(
    debian: Debian, layered: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    debian.image(
        f'base = {{ layout = "{kept}", manifest = "{_digest(kept)}" }}',
        more='[platform]\narchitecture = "arm64"\n',
    )
    code, text = debian.error()
    assert code == 1
    assert "error: the base is for another platform than the image\n" in text
    assert "  expected: linux/arm64\n  found:    linux/amd64\n" in text


def test_umoci_unpacks_it(debian: Debian, tmp_path: Path) -> None:
    if shutil.which("umoci") is None:
        pytest.skip("umoci is not installed")
    debian.build()
    target = tmp_path / "unpacked"
    rootless = [] if os.geteuid() == 0 else ["--rootless"]
    done = subprocess.run(
        ["umoci", "raw", "unpack", *rootless, "--image", f"{debian.project.layout()}:1.0", target],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (target / "usr/bin/perl5").read_bytes() == b"perl " * 900
    assert (target / "bin/su").stat().st_mode & 0o7777 == 0o4755
