"""Countries: ISO 3166-1 codes, the canonical short ASCII name, and other spellings found in surveys.

One line per country: alpha-2, alpha-3, canonical name, then aliases behind bars. The order of the words of an alias, its
case, accents, punctuation and the words "the" and "of" do not matter (see :func:`scpo.groups.canonical`). ``--`` stands
for a place that surveys count apart but that has no code of its own.
"""

from __future__ import annotations

TABLE = """
AD AND Andorra
AE ARE United Arab Emirates | UAE | Emirates
AF AFG Afghanistan
AG ATG Antigua and Barbuda
AI AIA Anguilla
AL ALB Albania
AM ARM Armenia
AO AGO Angola
AQ ATA Antarctica
AR ARG Argentina
AS ASM American Samoa
AT AUT Austria
AU AUS Australia
AW ABW Aruba
AX ALA Aland Islands
AZ AZE Azerbaijan
BA BIH Bosnia and Herzegovina | Bosnia Herzegovina | Bosnia
BB BRB Barbados
BD BGD Bangladesh
BE BEL Belgium
BF BFA Burkina Faso
BG BGR Bulgaria
BH BHR Bahrain
BI BDI Burundi
BJ BEN Benin
BL BLM Saint Barthelemy
BM BMU Bermuda
BN BRN Brunei | Brunei Darussalam
BO BOL Bolivia | Plurinational State of Bolivia
BQ BES Caribbean Netherlands | Bonaire, Sint Eustatius and Saba
BR BRA Brazil | Brasil
BS BHS Bahamas
BT BTN Bhutan
BV BVT Bouvet Island
BW BWA Botswana
BY BLR Belarus
BZ BLZ Belize
CA CAN Canada
CC CCK Cocos Islands | Cocos (Keeling) Islands
CD COD DR Congo | Democratic Republic of Congo | Dem. Rep. Congo | Congo DR | DRC | Congo Kinshasa
CF CAF Central African Republic
CG COG Congo | Republic of the Congo | Congo Brazzaville
CH CHE Switzerland
CI CIV Ivory Coast | Cote d'Ivoire | Cote d Ivoire
CK COK Cook Islands
CL CHL Chile
CM CMR Cameroon
CN CHN China | People's Republic of China | PR China | Mainland China
CO COL Colombia
CR CRI Costa Rica
CU CUB Cuba
CV CPV Cape Verde | Cabo Verde
CW CUW Curacao
CX CXR Christmas Island
CY CYP Cyprus
CZ CZE Czechia | Czech Republic
DE DEU Germany | Federal Republic of Germany
DJ DJI Djibouti
DK DNK Denmark
DM DMA Dominica
DO DOM Dominican Republic
DZ DZA Algeria
EC ECU Ecuador
EE EST Estonia
EG EGY Egypt | Arab Republic of Egypt
EH ESH Western Sahara
ER ERI Eritrea
ES ESP Spain
ET ETH Ethiopia
FI FIN Finland
FJ FJI Fiji
FK FLK Falkland Islands | Falkland Islands (Malvinas)
FM FSM Micronesia | Federated States of Micronesia
FO FRO Faroe Islands
FR FRA France
GA GAB Gabon
GB GBR United Kingdom | UK | Britain | Great Britain | GB NIR | United Kingdom of Great Britain and Northern Ireland
GD GRD Grenada
GE GEO Georgia
GF GUF French Guiana
GG GGY Guernsey
GH GHA Ghana
GI GIB Gibraltar
GL GRL Greenland
GM GMB Gambia
GN GIN Guinea
GP GLP Guadeloupe
GQ GNQ Equatorial Guinea
GR GRC Greece
GS SGS South Georgia and the South Sandwich Islands
GT GTM Guatemala
GU GUM Guam
GW GNB Guinea-Bissau
GY GUY Guyana
HK HKG Hong Kong | Hong Kong SAR | Hong Kong SAR China | Hong Kong China
HM HMD Heard Island and McDonald Islands
HN HND Honduras
HR HRV Croatia
HT HTI Haiti
HU HUN Hungary
ID IDN Indonesia
IE IRL Ireland | Republic of Ireland
IL ISR Israel
IM IMN Isle of Man
IN IND India
IO IOT British Indian Ocean Territory
IQ IRQ Iraq
IR IRN Iran | Islamic Republic of Iran
IS ISL Iceland
IT ITA Italy
JE JEY Jersey
JM JAM Jamaica
JO JOR Jordan
JP JPN Japan
KE KEN Kenya
KG KGZ Kyrgyzstan | Kyrgyz Republic
KH KHM Cambodia
KI KIR Kiribati
KM COM Comoros
KN KNA Saint Kitts and Nevis
KP PRK North Korea | N. Korea | DPRK | Democratic People's Republic of Korea
KR KOR South Korea | S. Korea | Republic of Korea
KW KWT Kuwait
KY CYM Cayman Islands
KZ KAZ Kazakhstan
LA LAO Laos | Lao People's Democratic Republic | Lao PDR
LB LBN Lebanon
LC LCA Saint Lucia
LI LIE Liechtenstein
LK LKA Sri Lanka
LR LBR Liberia
LS LSO Lesotho
LT LTU Lithuania
LU LUX Luxembourg
LV LVA Latvia
LY LBY Libya | Libyan Arab Jamahiriya
MA MAR Morocco
MC MCO Monaco
MD MDA Moldova | Republic of Moldova
ME MNE Montenegro
MF MAF Saint Martin | Saint Martin (French part)
MG MDG Madagascar
MH MHL Marshall Islands
MK MKD North Macedonia | N. Macedonia | Macedonia | Republic of North Macedonia | FYR Macedonia
ML MLI Mali
MM MMR Myanmar | Burma
MN MNG Mongolia
MO MAC Macau | Macao | Macau SAR | Macao SAR | Macau SAR China | Macao SAR China
MP MNP Northern Mariana Islands
MQ MTQ Martinique
MR MRT Mauritania
MS MSR Montserrat
MT MLT Malta
MU MUS Mauritius
MV MDV Maldives
MW MWI Malawi
MX MEX Mexico
MY MYS Malaysia
MZ MOZ Mozambique
NA NAM Namibia
NC NCL New Caledonia
NE NER Niger
NF NFK Norfolk Island
NG NGA Nigeria
NI NIC Nicaragua
NL NLD Netherlands | Kingdom of the Netherlands | Holland
NO NOR Norway
NP NPL Nepal
NR NRU Nauru
NU NIU Niue
NZ NZL New Zealand
OM OMN Oman
PA PAN Panama
PE PER Peru
PF PYF French Polynesia
PG PNG Papua New Guinea
PH PHL Philippines
PK PAK Pakistan
PL POL Poland
PM SPM Saint Pierre and Miquelon
PN PCN Pitcairn
PR PRI Puerto Rico
PS PSE Palestine | State of Palestine | Palest. ter. | Palestinian territories | Palestinian Territory, Occupied
PT PRT Portugal
PW PLW Palau
PY PRY Paraguay
QA QAT Qatar
RE REU Reunion
RO ROU Romania
RS SRB Serbia
RU RUS Russia | Russian Federation
RW RWA Rwanda
SA SAU Saudi Arabia
SB SLB Solomon Islands
SC SYC Seychelles
SD SDN Sudan
SE SWE Sweden
SG SGP Singapore
SH SHN Saint Helena | Saint Helena, Ascension and Tristan da Cunha
SI SVN Slovenia
SJ SJM Svalbard and Jan Mayen
SK SVK Slovakia | Slovak Republic
SL SLE Sierra Leone
SM SMR San Marino
SN SEN Senegal
SO SOM Somalia
SR SUR Suriname
SS SSD South Sudan | S. Sudan
ST STP Sao Tome and Principe
SV SLV El Salvador
SX SXM Sint Maarten | Sint Maarten (Dutch part)
SY SYR Syria | Syrian Arab Republic
SZ SWZ Eswatini | Swaziland
TC TCA Turks and Caicos Islands
TD TCD Chad
TF ATF French Southern Territories
TG TGO Togo
TH THA Thailand
TJ TJK Tajikistan
TK TKL Tokelau
TL TLS Timor-Leste | East Timor
TM TKM Turkmenistan
TN TUN Tunisia
TO TON Tonga
TR TUR Turkey | Turkiye
TT TTO Trinidad and Tobago
TV TUV Tuvalu
TW TWN Taiwan | Taiwan ROC | Taiwan, Province of China
TZ TZA Tanzania | United Republic of Tanzania
UA UKR Ukraine
UG UGA Uganda
UM UMI United States Minor Outlying Islands
US USA United States | U.S. | U.S.A. | United States of America
UY URY Uruguay
UZ UZB Uzbekistan
VA VAT Vatican City | Holy See | Holy See (Vatican City State)
VC VCT Saint Vincent and the Grenadines
VE VEN Venezuela | Bolivarian Republic of Venezuela
VG VGB British Virgin Islands | Virgin Islands, British
VI VIR United States Virgin Islands | Virgin Islands, U.S.
VN VNM Vietnam | Viet Nam
VU VUT Vanuatu
WF WLF Wallis and Futuna
WS WSM Samoa
XK XKX Kosovo
YE YEM Yemen
YT MYT Mayotte
ZA ZAF South Africa | S. Africa | RSA
ZM ZMB Zambia
ZW ZWE Zimbabwe
-- --- Northern Ireland | N. Ireland
"""


def rows() -> list[tuple[str, str, str, list[str]]]:
    """The table as ``(alpha-2, alpha-3, canonical name, aliases)``; both codes are ``""`` where there is none."""
    parsed = []
    for line in TABLE.strip().splitlines():
        names = [name.strip() for name in line[7:].split("|")]
        parsed.append((line[:2].strip("-"), line[3:6].strip("-"), names[0], names[1:]))
    return parsed
