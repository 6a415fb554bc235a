"""Shapes of counties and states of the USA."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ebfed.datasets.packages import keep_package, read_member, read_package

if TYPE_CHECKING:
    from sklearn.utils import Bunch

__all__ = ["fetch_county_shapes", "read_topology"]

PACKAGE = "us-atlas@3.0.1"
SHA256 = "e6daba1800885868303ad3549da62f85a557b8142bb72629ec15651de62f9c5d"


def fetch_county_shapes() -> Bunch:
    """Fetch the outlines of the counties and states of the USA in 2017, on the plane.

    They come from the npm package ``us-atlas`` 3.0.1, by ``npm pack``, which runs nothing of it. It
    is checked against its checksum and kept in the folder that the environment variable
    ``EBFED_DATA`` names, else in the cache of the user; a package saved there by hand serves
    without a network. The projection is equal-area (Albers), Alaska and Hawaii beside the rest.

    Returns
    -------
    Bunch
        ``counties``, ``states``: dict from code (five or two digits) to a list of rings, each an
        ndarray of shape (n_points, 2), x to the east and y to the north, closed; holes go round the
        other way. Simplification left some islands, and the cities of Falls Church, Lexington and
        Manassas Park, Virginia, a line. ``county_names``, ``state_names``: dict from code to name.
        ``source``: the package.

    Raises
    ------
    ImportError
        If pooch, of the extra ``data``, is needed and not installed.
    OSError
        If npm is not installed or cannot fetch the package; the message says what to do by hand.
    ValueError
        If the package has another checksum.

    References
    ----------
    U.S. Census Bureau, *Cartographic boundary files*, 2017 (public domain), as simplified in
    us-atlas by M. Bostock (ISC licence).

    Examples
    --------
    >>> shapes = fetch_county_shapes()  # doctest: +SKIP
    >>> len(shapes.counties), len(shapes.states)  # doctest: +SKIP
    (3142, 51)
    """
    try:
        path = keep_package(PACKAGE, SHA256)
    except OSError as error:
        raise OSError(
            f"The shapes of counties could not be fetched: {error} By hand: run `npm pack "
            f"{PACKAGE}` in the folder that EBFED_DATA names."
        ) from error
    with read_package(path, SHA256) as package:
        return read_topology(read_member(package, "package/counties-albers-10m.json"))


def read_topology(content: bytes) -> Bunch:
    """Read the counties and states of a TopoJSON file.

    Outlines are made of arcs, which neighbours share. An arc is a list of steps between points of a
    grid; the number ``~i`` means arc i backwards.

    Parameters
    ----------
    content : bytes
        With objects ``counties`` and ``states``, whose geometries have an id and a name. The file's
        y points south.

    Returns
    -------
    Bunch
        As `fetch_county_shapes` gives it.

    Raises
    ------
    ValueError
        If it is no such file.

    References
    ----------
    M. Bostock, C. Metcalf (2013), *The TopoJSON format specification*, section 2.

    Examples
    --------
    >>> square = {"type": "Polygon", "arcs": [[0]], "id": "01001", "properties": {"name": "A"}}
    >>> topology = {
    ...     "type": "Topology",
    ...     "transform": {"scale": [0.5, 0.5], "translate": [10, 0]},
    ...     "arcs": [[[0, 0], [2, 0], [0, 2], [-2, 0], [0, -2]]],
    ...     "objects": {"counties": {"geometries": [square]}, "states": {"geometries": []}},
    ... }
    >>> read_topology(json.dumps(topology).encode()).counties["01001"][0].tolist()
    [[10.0, 0.0], [11.0, 0.0], [11.0, -1.0], [10.0, -1.0], [10.0, 0.0]]
    """
    from sklearn.utils import Bunch

    topology = json.loads(content)
    try:
        scale, origin = (np.array(topology["transform"][name]) for name in ("scale", "translate"))
        arcs = [(np.cumsum(arc, axis=0) * scale + origin) * [1, -1] for arc in topology["arcs"]]
        found: dict[str, Any] = {"source": f"npm package {PACKAGE}"}
        for kind, names in (("counties", "county_names"), ("states", "state_names")):
            geometries = topology["objects"][kind]["geometries"]
            found[kind] = {each["id"]: _rings(each, arcs) for each in geometries}
            found[names] = {each["id"]: each["properties"]["name"] for each in geometries}
    except (KeyError, TypeError) as error:
        raise ValueError("this is no TopoJSON file of counties and states.") from error
    return Bunch(**found)


def _rings(geometry: dict, arcs: list[NDArray]) -> list[NDArray]:
    """Join the arcs of each ring; the last point of an arc is the first of the next."""
    polygons = geometry["arcs"] if geometry["type"] == "MultiPolygon" else [geometry["arcs"]]
    rings = []
    for ring in (ring for polygon in polygons for ring in polygon):
        parts = [arcs[i] if i >= 0 else arcs[~i][::-1] for i in ring]
        rings.append(np.concatenate([parts[0], *(part[1:] for part in parts[1:])]))
    return rings
