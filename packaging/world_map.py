"""Writes the outlines of countries for the world map of Scuba's page. Run it only to change them; its result is in the repository.

    npm pack world-atlas@2.0.2 i18n-iso-countries@7.14.0    and unpack both
    python packaging/world_map.py world-atlas/package i18n-iso-countries/package /usr/share/zoneinfo/zone.tab

countries-110m.json (Natural Earth, public domain) --Equal Earth projection, whole units--> SVG paths
codes.json (ISO 3166)                              --> the codes of each country
zone.tab (tz database, public domain)              --> a place for countries that are too small for an outline
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

PAGE = Path(__file__).parents[1] / "ops" / "scuba" / "page"
WIDTH, HEIGHT = 2_000, 973
A1, A2, A3, A4 = 1.340264, -0.081106, 0.000893, 0.003796
M = math.sqrt(3) / 2
POLE_Y = 1.3173627591574
Place = tuple[float, float]
"""Longitude and latitude, in degrees."""
Point = tuple[int, int]
HEAD = """\
// The outlines of countries, made by packaging/world_map.py from world-atlas 2.0.2; see world.LICENSE.txt.
// [ISO code of two letters, of three letters, number, name, outline in the Equal Earth projection, latitude, longitude]
"""


def project(longitude: float, latitude: float) -> Point:
    """Return the position of a place on the map, as map.js does."""
    phi, lambda_ = math.radians(latitude), math.radians(longitude)
    theta = math.asin(M * math.sin(phi))
    t2, t6 = theta**2, theta**6
    x = lambda_ * math.cos(theta) / (M * (A1 + 3 * A2 * t2 + t6 * (7 * A3 + 9 * A4 * t2)))
    y = theta * (A1 + A2 * t2 + t6 * (A3 + A4 * t2))
    scale = HEIGHT / (2 * POLE_Y)
    return round(WIDTH / 2 + x * scale), round(HEIGHT / 2 - y * scale)


def arcs_of(atlas: dict) -> list[list[Place]]:
    """Return the arcs of a TopoJSON file."""
    scale, translate = atlas["transform"]["scale"], atlas["transform"]["translate"]
    found = []
    for arc in atlas["arcs"]:
        x = y = 0
        points = []
        for dx, dy in arc:
            x, y = x + dx, y + dy
            points.append((x * scale[0] + translate[0], y * scale[1] + translate[1]))
        found.append(points)
    return found


def rings_of(geometry: dict, arcs: list[list[Place]]) -> Iterator[list[Point]]:
    """Yield the rings of a country."""
    polygons = [geometry["arcs"]] if geometry["type"] == "Polygon" else geometry["arcs"]
    for polygon in polygons:
        for ring in polygon:
            places: list[Place] = []
            for index in ring:
                places += arcs[index] if index >= 0 else arcs[~index][::-1]
            for part in on_map(places):
                points = [project(*place) for place in part]
                yield [point for at, point in enumerate(points) if at == 0 or point != points[at - 1]]


def on_map(ring: list[Place]) -> Iterator[list[Place]]:
    """Yield the parts of a ring on both sides of the 180th meridian."""
    unwrapped = [ring[0]]
    for longitude, latitude in ring[1:]:
        turns = round((unwrapped[-1][0] - longitude) / 360)
        unwrapped.append((longitude + 360 * turns, latitude))
    if abs(unwrapped[-1][0] - unwrapped[0][0]) > 180:  # around a pole
        yield ring
        return
    for shift in (-360, 0, 360):
        part = [(longitude + shift, latitude) for longitude, latitude in unwrapped]
        part = clipped(clipped(part, -180, 1), 180, -1)
        if part:
            yield part


def clipped(ring: list[Place], border: float, side: int) -> list[Place]:
    """Return the part of a ring on one side of a meridian (Sutherland and Hodgman, 1974)."""
    found: list[Place] = []
    for before, place in zip([ring[-1], *ring], ring, strict=False) if ring else ():
        is_inside, was_inside = ((each[0] - border) * side >= 0 for each in (place, before))
        if is_inside != was_inside:
            share = (border - before[0]) / (place[0] - before[0])
            found.append((border, before[1] + share * (place[1] - before[1])))
        if is_inside:
            found.append(place)
    return found


def path_of(ring: list[Point]) -> str:
    """Return a ring as an SVG path with relative coordinates."""
    ring = [*ring, ring[0]] if ring[0] != ring[-1] else ring
    steps = [(x - before[0], y - before[1]) for before, (x, y) in pairwise(ring)]
    numbers = " ".join(f"{dx} {dy}" for dx, dy in steps[:-1])
    return f"M{ring[0][0]} {ring[0][1]}l{numbers}z".replace(" -", "-")


def zone_places(zones: Path) -> dict[str, tuple[float, float]]:
    """Return the latitude and longitude of the first time zone of each country."""
    found: dict[str, tuple[float, float]] = {}
    for line in zones.read_text().splitlines():
        if not line.startswith("#"):
            code, position, *_ = line.split("\t")
            latitude, longitude = re.findall(r"[+-]\d+", position)
            found.setdefault(code, (degrees(latitude, 2), degrees(longitude, 3)))
    return found


def degrees(text: str, digits: int) -> float:
    """Return ±DDMM or ±DDMMSS in degrees."""
    sign, rest = (-1 if text[0] == "-" else 1), text[1:].ljust(digits + 4, "0")
    whole, minutes, seconds = int(rest[:digits]), int(rest[digits : digits + 2]), int(rest[digits + 2 :])
    return sign * round(whole + minutes / 60 + seconds / 3600, 1)


def main() -> None:
    """Write the file."""
    atlas_folder, codes_folder, zones = map(Path, sys.argv[1:])
    atlas = json.loads((atlas_folder / "countries-110m.json").read_text())
    arcs = arcs_of(atlas)
    outlines, names = {}, {}
    for geometry in atlas["objects"]["countries"]["geometries"]:
        key = geometry.get("id") or geometry["properties"]["name"]
        names[key] = geometry["properties"]["name"]
        rings = [ring for ring in rings_of(geometry, arcs) if len(ring) > 3]
        outlines[key] = "".join(map(path_of, rings))
    positions, lines = zone_places(zones), []
    codes = [tuple(row[:3]) for row in json.loads((codes_folder / "codes.json").read_text())]
    for code2, code3, number in [*codes, ("XK", "XKX", "Kosovo")]:  # user-assigned codes, and no number
        path = outlines.pop(number, "")
        if path or code2 in positions:
            latitude, longitude = positions.get(code2, (0, 0))
            lines.append(
                json.dumps([code2, code3, number, names.get(number, ""), path, latitude, longitude], ensure_ascii=False)
            )
    rest = "".join(outlines.values())  # such as Somaliland, which has no code
    text = f"{HEAD}export const [WIDTH, HEIGHT] = [{WIDTH}, {HEIGHT}];\nexport const OTHER_LAND = {json.dumps(rest)};\n"
    (PAGE / "world.js").write_text(text + "export const COUNTRIES = [\n" + ",\n".join(lines) + ",\n];\n")
    print(
        f"{len(lines)} countries, {(PAGE / 'world.js').stat().st_size:,} bytes; without a code: {', '.join(names[key] for key in outlines)}"
    )


if __name__ == "__main__":
    main()
