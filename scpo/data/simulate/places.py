"""Countries of PRISM's participants: spelling, code, regions, and how many were born and live there (of 1,500)."""

from __future__ import annotations

from typing import NamedTuple

UNKNOWN = "Prefer not to say"


class Place(NamedTuple):
    """One row of the country table; ``locale`` is where residents were recruited, empty where nobody lives there."""

    name: str
    iso: str
    subregion: str
    special: str
    born: int
    reside: int
    locale: str = ""


_LAC = "Latin America and the Caribbean"
_ANZ = "Australia and New Zealand"
_SSA = "Sub-Saharan Africa"
_NA = "Northern America"
_EU = "Europe"

PLACES: tuple[Place, ...] = (
    Place("United States", "USA", _NA, "US", 338, 386, "US"),
    Place("United Kingdom", "GBR", "Northern Europe", "UK", 292, 340, "UK"),
    Place("South Africa", "ZAF", _SSA, "Africa", 91, 86, "South Africa"),
    Place("Mexico", "MEX", _LAC, _LAC, 69, 67, "Mexico"),
    Place("Australia", "AUS", _ANZ, _ANZ, 65, 72, "Australia"),
    Place("New Zealand", "NZL", _ANZ, _ANZ, 64, 77, "New Zealand"),
    Place("Chile", "CHL", _LAC, _LAC, 63, 65, "Chile"),
    Place("Canada", "CAN", _NA, _NA, 50, 54, "Canada"),
    Place("Israel", "ISR", "Western Asia", "Middle East", 47, 61, "Israel"),
    Place("Nigeria", "NGA", _SSA, "Africa", 19, 0),
    Place("Spain", "ESP", "Southern Europe", _EU, 19, 18, "Spain"),
    Place("Germany", "DEU", "Western Europe", _EU, 17, 13, "Germany"),
    Place("Belgium", "BEL", "Western Europe", _EU, 17, 17, "Belgium"),
    Place("Hungary", "HUN", "Eastern Europe", _EU, 17, 16, "Hungary"),
    Place("Poland", "POL", "Eastern Europe", _EU, 17, 14, "Poland"),
    Place("Ireland", "IRL", "Northern Europe", _EU, 17, 15, "Ireland"),
    Place("Latvia", "LVA", "Northern Europe", _EU, 16, 14, "Latvia"),
    Place("Denmark", "DNK", "Northern Europe", _EU, 15, 15, "Denmark"),
    Place("Czechia", "CZE", "Eastern Europe", _EU, 15, 14, "Czech Republic"),
    Place("Norway", "NOR", "Northern Europe", _EU, 15, 15, "Norway"),
    Place("France", "FRA", "Western Europe", _EU, 14, 12, "France"),
    Place("Italy", "ITA", "Southern Europe", _EU, 14, 13, "Italy"),
    Place("Greece", "GRC", "Southern Europe", _EU, 14, 13, "Greece"),
    Place("Switzerland", "CHE", "Western Europe", _EU, 14, 14, "Switzerland"),
    Place("Finland", "FIN", "Northern Europe", _EU, 12, 13, "Finland"),
    Place("Estonia", "EST", "Northern Europe", _EU, 11, 10, "Estonia"),
    Place("Austria", "AUT", "Western Europe", _EU, 11, 10, "Austria"),
    Place("Slovenia", "SVN", "Southern Europe", _EU, 10, 10, "Slovenia"),
    Place("Netherlands", "NLD", "Western Europe", _EU, 9, 8, "Netherlands"),
    Place("India", "IND", "Southern Asia", "Asia", 9, 0),
    Place("Japan", "JPN", "Eastern Asia", "Asia", 9, 11, "Asia"),
    Place("Korea, Republic of", "KOR", "Eastern Asia", "Asia", 9, 7, "Asia"),
    Place("Portugal", "PRT", "Southern Europe", _EU, 8, 7, "Portugal"),
    Place("Romania", "ROU", "Eastern Europe", _EU, 7, 0),
    Place("Philippines", "PHL", "South-eastern Asia", "Asia", 7, 0),
    Place("Sweden", "SWE", "Northern Europe", _EU, 7, 6, "Sweden"),
    Place("Russian Federation", "RUS", "Eastern Europe", _EU, 6, 0),
    Place("Ukraine", "UKR", "Eastern Europe", _EU, 4, 0),
    Place("Bangladesh", "BGD", "Southern Asia", "Asia", 4, 0),
    Place("China", "CHN", "Eastern Asia", "Asia", 4, 0),
    Place("Hong Kong", "HKG", "Eastern Asia", "Asia", 3, 0),
    Place("Pakistan", "PAK", "Southern Asia", "Asia", 3, 0),
    Place("Ghana", "GHA", _SSA, "Africa", 3, 0),
    Place("Dominican Republic", "DOM", _LAC, _LAC, 3, 0),
    Place("Venezuela, Bolivarian Republic of", "VEN", _LAC, _LAC, 3, 0),
    Place("Indonesia", "IDN", "South-eastern Asia", "Asia", 3, 0),
    Place("Viet Nam", "VNM", "South-eastern Asia", "Asia", 2, 0),
    Place("Sri Lanka", "LKA", "Southern Asia", "Asia", 2, 0),
    Place("Türkiye", "TUR", "Western Asia", "Middle East", 2, 0),
    Place("Argentina", "ARG", _LAC, _LAC, 2, 0),
    Place("Kazakhstan", "KAZ", "Central Asia", "Asia", 2, 0),
    Place("Sudan", "SDN", "Northern Africa", "Africa", 1, 0),
    Place("Tonga", "TON", "Polynesia", "Oceania", 1, 0),
    Place("Brazil", "BRA", _LAC, _LAC, 1, 0),
    Place("Bulgaria", "BGR", "Eastern Europe", _EU, 1, 0),
    Place("Colombia", "COL", _LAC, _LAC, 1, 0),
    Place("Côte d'Ivoire", "CIV", _SSA, "Africa", 1, 0),
    Place("Malaysia", "MYS", "South-eastern Asia", "Asia", 1, 0),
    Place("Iceland", "ISL", "Northern Europe", _EU, 1, 1, "Iceland"),
    Place("Jamaica", "JAM", _LAC, _LAC, 1, 0),
    Place("Kenya", "KEN", _SSA, "Africa", 1, 0),
    Place("Luxembourg", "LUX", "Western Europe", _EU, 1, 2, "Luxembourg"),
    Place("Tanzania, United Republic of", "TZA", _SSA, "Africa", 0, 1, "South Africa"),
    Place("Lesotho", "LSO", _SSA, "Africa", 0, 1, "South Africa"),
    Place("Uruguay", "URY", _LAC, _LAC, 0, 1, "Mexico"),
    Place(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, 3, 1, "US"),
)
"""PRISM's spellings; the single births of the long tail are left out."""
