// The official Node client against a running service: `node check.mjs URL KEY MODEL`. Ends with a line of what held.
import assert from "node:assert/strict";
import OpenAI from "openai";

const [url, key, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const messages = [{ role: "user", content: "Hello!" }];

async function text(stream) {
  let whole = "";
  for await (const chunk of stream) whole += chunk.choices[0]?.delta?.content ?? "";
  return whole;
}

const checks = {
  async models_are_listed_and_found() {
    const names = (await client.models.list()).data.map((entry) => entry.id);
    assert(names.includes(model));
    assert.equal((await client.models.retrieve(model)).id, model);
  },
  async a_stream_says_the_same_as_an_answer() {
    const answer = await client.chat.completions.create({ model, messages, temperature: 0 });
    const stream = await client.chat.completions.create({ model, messages, temperature: 0, stream: true });
    assert.equal(await text(stream), answer.choices[0].message.content);
    assert.equal(answer.choices[0].finish_reason, "stop");
  },
  async the_stream_helper_puts_an_answer_together() {
    const runner = client.chat.completions.stream({ model, messages, temperature: 0, stream_options: { include_usage: true } });
    const whole = await runner.finalChatCompletion();
    assert(whole.choices[0].message.content.length > 0);
    assert(whole.usage.completion_tokens > 0);
  },
  async sixty_four_streams_do_not_mix() {
    const ask = (number, stream) => ({
      model, temperature: 0, max_tokens: 16, stream,
      messages: [{ role: "user", content: `What is ${number % 8} plus ${Math.floor(number / 8)}?` }],
    });
    const numbers = [...Array(64).keys()];
    const alone = [];
    for (const number of numbers) {
      alone.push((await client.chat.completions.create(ask(number, false))).choices[0].message.content);
    }
    // As many at once as an account may have open.
    const together = [];
    const waiting = numbers.values();
    const ask_on = async () => {
      for (const number of waiting) together[number] = await text(await client.chat.completions.create(ask(number, true)));
    };
    await Promise.all(Array.from({ length: 24 }, ask_on));
    assert.deepEqual(together, alone);
  },
  async an_aborted_stream_ends_quietly() {
    const stream = await client.chat.completions.create({ model, messages, stream: true, max_tokens: 500 });
    for await (const _ of stream) stream.controller.abort();
  },
  async mistakes_have_their_own_errors() {
    const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: "AAAAAAAAAAAAAAAAAAAAAA", maxRetries: 0 });
    await assert.rejects(stranger.chat.completions.create({ model, messages }), OpenAI.AuthenticationError);
    await assert.rejects(client.chat.completions.create({ model, messages, temprature: 1 }), OpenAI.BadRequestError);
    await assert.rejects(client.chat.completions.create({ model: "nothing-like-it", messages }), OpenAI.NotFoundError);
  },
};

for (const [name, check] of Object.entries(checks)) {
  await check();
  console.log("held:", name);
}
console.log(`${Object.keys(checks).length} held`);
