"""Writes one small MP4 for each codec whose key frames are checked: 4 frames of 64 by 48 pixels. Needs the packages av and numpy."""

from pathlib import Path

import av
import numpy

FOLDER = Path(__file__).parent
CODECS = {
    "h264": ("libx264", {}),
    "h265": ("libx265", {"x265-params": "log-level=none"}),
    "av1": ("libsvtav1", {"crf": "50"}),
    "vp9": ("libvpx-vp9", {}),
    "mpeg4": ("mpeg4", {}),
    "jpeg": ("mjpeg", {}),
}
FORMATS = {"jpeg": "yuvj420p"}


def main():
    for name, (encoder, options) in CODECS.items():
        with av.open(str(FOLDER / f"{name}.mp4"), "w") as file:
            stream = file.add_stream(encoder, rate=8, options=options)
            stream.width, stream.height = 64, 48
            stream.pix_fmt = FORMATS.get(name, "yuv420p")
            stream.bit_rate = 0 if name == "av1" else 20_000
            for at in range(4):
                y, x = numpy.mgrid[0:48, 0:64]
                pixels = numpy.stack([x * 4, y * 5, (x + y + at * 16) * 2], axis=2).astype(numpy.uint8)
                frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
                for packet in stream.encode(frame):
                    file.mux(packet)
            for packet in stream.encode():
                file.mux(packet)


if __name__ == "__main__":
    main()
