"""The official Python client draws, edits and varies images with the model that the program carries."""

import base64
import io

import openai
from PIL import Image

from harness import KEY, URL, fails, run

client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)
SIDE = 128
MODEL = "demo-image"
# A source without a size is fitted into the area of the model's own images.
OWN_SIDE = 256


def file(image, name="image.png"):
    out = io.BytesIO()
    image.save(out, "PNG")
    return name, out.getvalue(), "image/png"


def opened(image):
    return Image.open(io.BytesIO(base64.b64decode(image.b64_json))).convert("RGB")


def fitted(image):
    """An image of the model's own size, in the size of the source."""
    image = opened(image)
    assert image.size == (OWN_SIDE, OWN_SIDE), image.size
    return image.resize((SIDE, SIDE))


def source():
    """Blue on the left, yellow on the right."""
    image = Image.new("RGB", (SIDE, SIDE), (40, 70, 220))
    image.paste((240, 220, 40), (SIDE // 2, 0, SIDE, SIDE))
    return image


def mask(repainted):
    """Opaque but for this box."""
    image = Image.new("RGBA", (SIDE, SIDE), (0, 0, 0, 255))
    image.paste((0, 0, 0, 0), repainted)
    return image


def distance(one, other):
    return max(abs(a - b) for a, b in zip(one, other))


def check_an_image_is_drawn():
    drawn = client.images.generate(
        model=MODEL, prompt="a red circle on a white background", response_format="b64_json",
        extra_body={"seed": 1, "steps": 8})
    assert len(drawn.data) == 1 and drawn.output_format == "webp"
    assert opened(drawn.data[0]).size[0] >= 64


def check_an_edit_keeps_what_lies_outside_of_the_mask():
    left = (0, 0, SIDE // 2, SIDE)
    edited = client.images.edit(
        model=MODEL, image=file(source()), mask=file(mask(left), "mask.png"),
        prompt="a red circle on a white background", n=1, response_format="b64_json", output_format="png",
        extra_body={"seed": 3, "steps": 8, "strength": 1})
    image = fitted(edited.data[0])
    for x in range(SIDE // 2 + 8, SIDE, 7):
        for y in range(4, SIDE, 7):
            kept = image.getpixel((x, y))
            assert distance(kept, (240, 220, 40)) < 24, (x, y, kept)
    moved = [image.getpixel((x, y)) for x in range(4, SIDE // 2 - 8, 7) for y in range(4, SIDE, 7)]
    changed = sum(distance(pixel, (40, 70, 220)) > 60 for pixel in moved)
    assert changed > len(moved) // 2, (changed, len(moved))


def check_an_edit_may_come_as_a_list_and_be_streamed():
    events = list(client.images.edit(
        model=MODEL, image=[file(source())], prompt="a green square on a black background", stream=True,
        partial_images=1, extra_body={"steps": 6, "seed": 1}))
    assert events[-1].type == "image_edit.completed", events[-1].type
    assert {event.type for event in events[:-1]} <= {"image_edit.partial_image"}
    assert opened(events[-1]).size == (OWN_SIDE, OWN_SIDE)


def check_a_variation_looks_like_its_image():
    varied = client.images.create_variation(
        model=MODEL, image=file(source()), n=2, response_format="b64_json",
        extra_body={"seed": 1, "steps": 6, "strength": 0.2})
    assert len(varied.data) == 2
    for entry in varied.data:
        image = fitted(entry)
        left, right = image.getpixel((16, 64)), image.getpixel((112, 64))
        assert left[2] > left[0] and right[0] > right[2], (left, right)


def check_what_cannot_be_edited_is_refused_by_name():
    def edit(**options):
        given = {"image": file(source()), "prompt": "x", **options}
        return lambda: client.images.edit(model=MODEL, **given)

    small = Image.new("RGBA", (64, 64))
    assert fails(openai.BadRequestError, "size of image", edit(mask=file(small))).param == "mask"
    opaque = Image.new("RGBA", (SIDE, SIDE), (0, 0, 0, 255))
    assert fails(openai.BadRequestError, "transparent", edit(mask=file(opaque))).param == "mask"
    assert fails(openai.BadRequestError, "n must be", edit(n=1_000_000)).param == "n"
    assert fails(openai.BadRequestError, "size must be", edit(size="0x0")).param == "size"
    broken = ("image.png", file(source())[1][:200], "image/png")
    assert fails(openai.BadRequestError, "image", edit(image=broken)).param == "image"
    frames = io.BytesIO()
    source().save(frames, "GIF", save_all=True, append_images=[Image.new("RGB", (SIDE, SIDE))])
    animated = ("image.gif", frames.getvalue(), "image/gif")
    assert fails(openai.BadRequestError, "GIF", edit(image=animated)).param == "image"


run(globals())
