// Speech, transcripts and videos by the official client of OpenAI: check_media.mjs URL KEY.
import assert from "node:assert";
import OpenAI, { toFile } from "openai";

const [url, key] = process.argv.slice(2);
const client = new OpenAI({ baseURL: url + "/v1", apiKey: key, maxRetries: 0 });

const speech = await client.audio.speech.create({
  model: "speaks", voice: "alloy", input: "Hello there.", response_format: "wav",
});
const wav = Buffer.from(await speech.arrayBuffer());
assert.equal(wav.subarray(0, 4).toString(), "RIFF");
assert.equal(wav.readUInt32LE(40), 48000);

const pcm = await client.audio.speech.create({
  model: "speaks", voice: "am_adam", input: "Hello there.", response_format: "pcm",
});
let bytes = 0;
for await (const part of pcm.body) bytes += part.length;
assert.equal(bytes, 48000);

const file = await toFile(wav, "speech.wav");
const heard = await client.audio.transcriptions.create({ model: "hears", file, response_format: "verbose_json" });
assert.equal(heard.duration, 1);
const types = [];
for await (const event of await client.audio.transcriptions.create({ model: "hears", file, stream: true })) types.push(event.type);
assert.equal(types.at(-1), "transcript.text.done");

let video = await client.videos.create({ model: "films", prompt: "a white square moves to the right" });
while (video.status === "queued" || video.status === "in_progress") {
  await new Promise((resolve) => setTimeout(resolve, 50));
  video = await client.videos.retrieve(video.id);
}
assert.equal(video.status, "completed");
const film = Buffer.from(await (await client.videos.downloadContent(video.id)).arrayBuffer());
assert.equal(film.subarray(4, 8).toString(), "ftyp");
assert.equal((await client.videos.delete(video.id)).deleted, true);
console.log("ok");
