"""Shapes of counties: the decoder, and where the package is looked for."""

import io
import json
import os
import tarfile
from hashlib import sha256

import numpy as np
import pytest

from ebfed.datasets import packages, shapes
from ebfed.datasets.shapes import fetch_county_shapes, read_topology

# Two squares side by side; arc 0 is their common border, from south to north (y points south).
TOPOLOGY = {
    "type": "Topology",
    "transform": {"scale": [0.5, 2.0], "translate": [10.0, -1.0]},
    "arcs": [
        [[2, 2], [0, -2]],  # from (2, 2) up to (2, 0)
        [[2, 0], [-2, 0], [0, 2], [2, 0]],  # round the left one
        [[2, 0], [2, 0], [0, 2], [-2, 0]],  # round the right one
    ],
    "objects": {
        "counties": {
            "geometries": [
                {
                    "type": "Polygon",
                    "id": "01001",
                    "arcs": [[0, 1]],
                    "properties": {"name": "West"},
                },
                {
                    "type": "MultiPolygon",
                    "id": "01003",
                    "arcs": [[[2, 0]]],
                    "properties": {"name": "East"},
                },
            ]
        },
        "states": {
            "geometries": [
                {
                    "type": "Polygon",
                    "id": "01",
                    "arcs": [[-2, 2]],  # ~1: round the left one, backwards
                    "properties": {"name": "Alabama"},
                }
            ]
        },
    },
}


def packed(content):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as package:
        member = tarfile.TarInfo("package/counties-albers-10m.json")
        member.size = len(content)
        package.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


PACKAGE = packed(json.dumps(TOPOLOGY).encode())


def area(rings):
    """Signed area, positive if rings go round against the clock."""
    total = 0.0
    for (x, y), (u, v) in ((ring[:-1].T, ring[1:].T) for ring in rings):
        total += 0.5 * np.sum(x * v - u * y)
    return total


def test_rings_are_joined_from_arcs():
    found = read_topology(json.dumps(TOPOLOGY).encode())
    assert found.county_names == {"01001": "West", "01003": "East"}
    assert found.state_names == {"01": "Alabama"}
    (west,) = found.counties["01001"]
    # x: 10 + half of 0 to 2; y: 1 - twice 0 to 2, so that north is up
    expected = [[11, -3], [11, 1], [10, 1], [10, -3], [11, -3]]
    np.testing.assert_allclose(west, expected)
    (east,) = found.counties["01003"]
    np.testing.assert_allclose(east, [[11, 1], [12, 1], [12, -3], [11, -3], [11, 1]])
    assert area([west]) == 4
    assert area([east]) == -4


def test_a_negative_number_is_an_arc_backwards():
    (outline,) = read_topology(json.dumps(TOPOLOGY).encode()).states["01"]
    np.testing.assert_array_equal(outline[0], outline[-1])
    np.testing.assert_allclose(outline.min(axis=0), [10, -3])
    np.testing.assert_allclose(outline.max(axis=0), [12, 1])
    assert abs(area([outline])) == 8


@pytest.mark.parametrize("lost", ["arcs", "transform", "objects"])
def test_another_file_is_refused(lost):
    other = {name: part for name, part in TOPOLOGY.items() if name != lost}
    with pytest.raises(ValueError, match="no TopoJSON file of counties"):
        read_topology(json.dumps(other).encode())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder EBFED_DATA; a cache and a path with nothing; a tiny package."""
    pooch = pytest.importorskip("pooch")
    data = tmp_path / "data"
    monkeypatch.setenv("EBFED_DATA", str(data))
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(shapes, "SHA256", sha256(PACKAGE).hexdigest())
    return data


def save(folder, content=PACKAGE):
    folder.mkdir(parents=True)
    (folder / "us-atlas-3.0.1.tgz").write_bytes(content)


def test_a_package_saved_by_hand_serves(folder):
    save(folder)
    found = fetch_county_shapes()
    assert list(found.counties) == ["01001", "01003"]
    assert found.source == "npm package us-atlas@3.0.1"


def test_the_cache_serves_where_the_folder_has_nothing(folder, tmp_path):
    save(tmp_path / "cache" / "ebfed")
    assert list(fetch_county_shapes().states) == ["01"]
    assert not folder.exists()


def test_a_package_that_was_changed_is_refused(folder):
    save(folder, PACKAGE + b"0")
    with pytest.raises(ValueError, match="SHA-256"):
        fetch_county_shapes()


def test_without_npm_the_error_says_what_to_do(folder):
    with pytest.raises(OSError, match="npm is not installed") as caught:
        fetch_county_shapes()
    assert "`npm pack us-atlas@3.0.1`" in str(caught.value)
    assert not list(folder.glob("*"))


@pytest.mark.skipif(os.name == "nt", reason="the npm of this test is a shell script")
@pytest.mark.parametrize("sound", [True, False])
def test_what_npm_fetches_is_checked_and_kept(folder, tmp_path, sound):
    (tmp_path / "served.tgz").write_bytes(PACKAGE if sound else PACKAGE[:-1])
    npm = tmp_path / "npm"
    npm.write_text(
        f'#!/bin/sh\n[ "$1 $2" = "pack us-atlas@3.0.1" ] || exit 1\n'
        f"/bin/cp {tmp_path}/served.tgz us-atlas-3.0.1.tgz\n"
    )
    npm.chmod(0o755)
    if sound:
        assert len(fetch_county_shapes().counties) == 2
        assert [path.name for path in folder.iterdir()] == ["us-atlas-3.0.1.tgz"]
        npm.unlink()
        assert len(fetch_county_shapes().counties) == 2
    else:
        with pytest.raises(ValueError, match="SHA-256"):
            fetch_county_shapes()
        assert not list(folder.iterdir())


def test_names_of_scoped_and_plain_packages():
    assert packages.file_name("us-atlas@3.0.1") == "us-atlas-3.0.1.tgz"


@pytest.mark.slow
def test_the_real_shapes():
    try:
        found = fetch_county_shapes()
    except OSError as error:
        pytest.skip(f"no network: {error}")
    assert len(found.counties) == 3142
    assert len(found.states) == 51
    assert found.county_names["46102"] == "Oglala Lakota"
    assert sum(code.startswith("02") for code in found.counties) == 29
    assert {"09001", "51019"} <= found.counties.keys()
    assert not {"46113", "51515", "09110"} & found.counties.keys()
    for code, rings in found.counties.items():
        assert all(np.array_equal(ring[0], ring[-1]) for ring in rings), code
    # a state has the area of its counties: in Nebraska but for .03 %, elsewhere to rounding
    for code, rings in found.states.items():
        parts = [area(x) for county, x in found.counties.items() if county[:2] == code]
        assert area(rings) == pytest.approx(sum(parts), rel=1e-3)
    # square miles of land (Census 2010): Texas among the 48 states and the District
    drawn = {code: area(rings) for code, rings in found.states.items()}
    lower = sum(value for code, value in drawn.items() if code not in ("02", "15"))
    assert drawn["48"] / lower == pytest.approx(261_232 / 2_959_064, abs=0.001)
