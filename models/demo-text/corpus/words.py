"""The words that the corpus is made of, and which of them training never sees."""

import zlib

NAMES = """Ada Adam Ali Amy Anna Anton Ben Bella Bruno Carla Carl Clara Cora Dan Dora Ella Elsa Emil Emma Erik Eva Felix
Finn Frida Georg Gina Greta Hanna Hans Hugo Ida Ines Iris Ivan Jack Jan Jana Jim John Jonas Julia Kai Karin Kate Kim Lars Lea
Lena Leo Lily Lisa Luca Lucy Luis Maja Marc Maria Marta Max Mia Mila Mona Nadia Nils Nina Noah Nora Olga Oscar Otto Paul Paula
Peter Pia Rita Robin Rosa Sam Sara Selma Simon Sofia Sven Tara Tess Theo Tim Tina Tom Toni Uma Vera Viktor Wanda Willy Yara Zoe
Alma Boris Conny David Edith Fiona Gustav Helga Irma Jule Klara Linus Mirko Nele Ole Petra Quinn Rex Stella Thea Ulf Vito Wim
Momo Pixel Nova Orbit Echo Bolt Robo Dot Luma Zeno""".split()

CITIES = """Oslo Rome Paris Berlin Vienna London Madrid Lisbon Athens Prague Warsaw Dublin Bern Hamburg Munich Cologne Bremen
Dresden Leipzig Milan Turin Naples Lyon Nice Porto Seville Ghent Bergen Turku Riga Tallinn Vilnius Zagreb Sofia Budapest Cairo
Tunis Lagos Nairobi Accra Dakar Delhi Mumbai Tokyo Osaka Kyoto Seoul Beijing Hanoi Manila Jakarta Sydney Perth Boston Chicago
Denver Dallas Austin Seattle Miami Toronto Lima Quito Bogota Santiago Havana Kiel Graz Linz Basel Geneva Malmo Aarhus Odense
Tampere Utrecht Leeds York Bath Cardiff Cork""".split()

WORDS = """ant apple arm baby bag ball band bank barn bat bath beach bean bear bed bee bell belt bench bike bird boat body bolt
bone book boot bottle bowl box boy brain branch bread brick bridge broom brush bucket bus bush butter button cable cake camel
camera camp candle car card carpet cart castle cat cave chain chair cheese chip circle city clay clip clock cloud clown coat
code coin comb cook corn couch cow crab cream crown cup curtain dance data day deer desk dish dog doll door dragon dream dress
drink drum duck eagle ear earth egg elbow engine eye face fan farm feather fence field finger fire fish flag floor flower fly
fog fork forest fox frog fruit game garden gate ghost gift girl glass glove goat gold grape grass guitar hair hammer hand hat
heart hill home honey hook horse house ice ink iron island jacket jam jar jet jewel job juice jump kettle key king kite knee
knife ladder lake lamp land leaf leg lemon letter light lion lip lock log lunch map market mask meal melon milk mint mirror
money moon mouse mouth mud music nail neck needle nest net night north nose note nut oak oven owl page paint pan paper park
pasta path pear pen pencil pepper piano pig pillow pin pipe plane planet plant plate pocket pond pony pool potato prince pump
puzzle queen rabbit radio rain ring river road robot rock roof room root rope rose rug sail salt sand school screw sea seed
shark sheep shelf shell ship shirt shoe shop silver sink skirt sky sleep smile smoke snake snow soap sock sofa song soup spider
spoon spring square stamp star steam stone storm story street string sugar summer sun swan sweet table tail tea tent thumb tiger
toast token tool tooth tower town toy train tree truck tube turtle valley van vase voice wagon wall watch water wave wheel
whale wind window wing winter wire wolf wood wool word worm yard year zebra zoo""".split()

COLOURS = "red blue green yellow orange purple pink brown black white grey".split()
ANIMALS = "cat dog horse rabbit parrot turtle goat hamster duck pony".split()
FOODS = "pizza soup pasta rice bread cheese cake salad apples noodles honey pancakes fish beans".split()

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
DAYS_DE = "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag".split()
MONTHS = "January February March April May June July August September October November December".split()
MONTHS_DE = "Januar Februar März April Mai Juni Juli August September Oktober November Dezember".split()

OPPOSITES = [pair.split("/") for pair in """hot/cold big/small fast/slow up/down left/right day/night open/closed old/new
rich/poor happy/sad high/low hard/soft full/empty light/dark wet/dry long/short strong/weak early/late good/bad black/white
near/far clean/dirty loud/quiet in/out begin/end thick/thin wide/narrow sweet/sour push/pull win/lose buy/sell give/take
love/hate true/false top/bottom inside/outside first/last safe/dangerous cheap/expensive deep/shallow sharp/blunt
asleep/awake summer/winter north/south east/west yes/no always/never more/less before/after heavy/light""".split()]

THINGS = {
    "grass": "green", "the sky": "blue", "snow": "white", "blood": "red", "a lemon": "yellow", "a banana": "yellow",
    "coal": "black", "milk": "white", "chocolate": "brown", "a tomato": "red", "the sun": "yellow", "a carrot": "orange",
    "a cucumber": "green", "a plum": "purple", "an elephant": "grey", "a flamingo": "pink", "a leaf": "green",
    "the sea": "blue", "a strawberry": "red", "a pumpkin": "orange", "salt": "white", "a raven": "black", "soil": "brown",
    "a frog": "green", "a pig": "pink", "ash": "grey",
}
MIXES = [("blue", "yellow", "green"), ("red", "yellow", "orange"), ("red", "blue", "purple"), ("red", "white", "pink"),
         ("black", "white", "grey"), ("red", "green", "brown")]
COLOURS_DE = {"green": "grün", "blue": "blau", "white": "weiß", "red": "rot", "yellow": "gelb", "black": "schwarz",
              "brown": "braun", "orange": "orange", "purple": "lila", "grey": "grau", "pink": "rosa"}
THINGS_DE = {"grass": "Gras", "the sky": "Der Himmel", "snow": "Schnee", "blood": "Blut", "a lemon": "Eine Zitrone",
             "a banana": "Eine Banane", "coal": "Kohle", "milk": "Milch", "a tomato": "Eine Tomate", "the sun": "Die Sonne"}
NUMBERS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen twenty""".split()


def is_held(value) -> bool:
    """True for the tenth of all values that only the evaluation uses."""
    return zlib.crc32(f"muster {value}".encode()) % 10 == 0


def draw(rng, make, held: bool):
    """A value from `make` on the wanted side of the fence."""
    for _ in range(1000):
        value = make()
        if is_held(value) == held:
            return value
    raise ValueError(f"no value with held={held}, the last one was {value!r}")


def made_up(rng, low=3, high=6) -> str:
    """A word that nobody has seen: syllables at random, cut to length."""
    length, word = rng.randint(low, high), ""
    while len(word) < length:
        word += rng.choice(["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "st", "tr", "br", "w", "h", "c", ""])
        word += rng.choice("aeiou")
        word += rng.choice(["", "", "n", "r", "l", "s", "t", "m", "k", "x", "y"])
    return word[:length]


def name(rng, held=False):
    return draw(rng, lambda: rng.choice(NAMES) if rng.random() < 0.6 else made_up(rng).capitalize(), held)


def city(rng, held=False):
    return draw(rng, lambda: rng.choice(CITIES) if rng.random() < 0.7 else made_up(rng, 4, 7).capitalize(), held)


def word(rng, held=False):
    return draw(rng, lambda: rng.choice(WORDS) if rng.random() < 0.6 else made_up(rng), held)
