"""Speech, transcripts and videos by the official client of OpenAI: check_media.py URL KEY."""

import io
import struct
import sys
import wave

from openai import BadRequestError, OpenAI

client = OpenAI(base_url=sys.argv[1] + "/v1", api_key=sys.argv[2], max_retries=0)

# Speech: whole, as it is spoken, in events.
speech = client.audio.speech.create(model="speaks", voice="alloy", input="Hello there.", response_format="wav")
with wave.open(io.BytesIO(speech.content)) as file:
    assert (file.getframerate(), file.getnframes()) == (24000, 24000), file.getparams()
with client.audio.speech.with_streaming_response.create(
    model="speaks", voice="am_adam", input="Hello there.", response_format="pcm", speed=1.5
) as streamed:
    samples = b"".join(streamed.iter_bytes())
levels = struct.unpack(f"<{len(samples) // 2}h", samples)
assert len(levels) == 24000 and max(levels) > 16000, (len(levels), max(levels))
with client.audio.speech.with_streaming_response.create(
    model="speaks", voice="alloy", input="Hello there.", response_format="pcm", stream_format="sse"
) as streamed:
    events = [line for line in streamed.iter_lines() if line.startswith("data: ")]
assert "speech.audio.delta" in events[0] and "speech.audio.done" in events[-1], events[-1]
try:
    client.audio.speech.create(model="speaks", voice="novella", input="Hello there.")
    raise AssertionError("a voice that does not exist was taken")
except BadRequestError as error:
    assert error.param == "voice", error

# Transcripts of the speech: whole and streamed.
heard = client.audio.transcriptions.create(model="hears", file=("speech.wav", speech.content), response_format="verbose_json")
assert heard.duration == 1.0 and heard.segments, heard
deltas = client.audio.transcriptions.create(model="hears", file=("speech.wav", speech.content), stream=True)
types = [event.type for event in deltas]
assert types[0] == "transcript.text.delta" and types[-1] == "transcript.text.done", types

# Videos in the background.
video = client.videos.create_and_poll(model="films", prompt="a white square moves to the right", poll_interval_ms=50)
assert (video.status, video.progress) == ("completed", 100), video
file = client.videos.download_content(video.id).content
assert file[4:8] == b"ftyp", file[:16]
assert video.id in [one.id for one in client.videos.list()]
assert client.videos.delete(video.id).deleted
print("ok")
