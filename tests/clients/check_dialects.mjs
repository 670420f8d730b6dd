// Node clients of the Responses and Messages APIs, and Vercel's `ai` on both: `node check_dialects.mjs URL KEY MODEL`. Ends with
// a line of how many checks held.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { z } from "zod";

const [url, key, model] = process.argv.slice(2);
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
const messages = [{ role: "user", content: "Hello!" }];
const providers = {
  chat: createOpenAI({ baseURL: `${url}/v1`, apiKey: key }).chat(model),
  messages: createAnthropic({ baseURL: `${url}/v1`, apiKey: key })(model),
  responses: createOpenAI({ baseURL: `${url}/v1`, apiKey: key }).responses(model),
};

async function withTool(provider) {
  const asked = [];
  const getWeather = tool({
    description: "The weather in a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => {
      asked.push(city);
      return { weather: "sunny", temperature: 21 };
    },
  });
  const { text } = await generateText({
    model: provider, prompt: "What is the weather in Paris?", temperature: 0, maxOutputTokens: 200, maxRetries: 0,
    tools: { get_weather: getWeather }, stopWhen: stepCountIs(4),
  });
  assert(asked[0]?.includes("Paris") && text.length > 0, JSON.stringify([asked, text]));
}

async function streamed(provider) {
  const options = { model: provider, prompt: "Hello!", temperature: 0, maxOutputTokens: 100, maxRetries: 0 };
  let whole = "";
  for await (const piece of streamText(options).textStream) whole += piece;
  assert.equal(whole, (await generateText(options)).text);
  assert(whole.length > 0);
}

async function structured(provider) {
  const schema = z.object({ name: z.string().max(20), age: z.number().int().min(0).max(150) });
  const { object } = await generateObject({ model: provider, schema, prompt: "Who are you?", maxOutputTokens: 300, maxRetries: 0 });
  assert.equal(typeof object.name, "string");
}

const checks = {
  async messages_are_made_and_streamed() {
    const answer = await anthropic.messages.create({ model, messages, max_tokens: 100, temperature: 0 });
    const final = await anthropic.messages.stream({ model, messages, max_tokens: 100, temperature: 0 }).finalMessage();
    assert.deepEqual(final.content.map(({ type, text }) => [type, text]), answer.content.map(({ type, text }) => [type, text]));
    const counted = await anthropic.messages.countTokens({ model, messages });
    assert.equal(counted.input_tokens, answer.usage.input_tokens + (answer.usage.cache_read_input_tokens ?? 0));
  },
  async mistakes_have_their_own_errors() {
    await assert.rejects(anthropic.messages.create({ model: "nothing-like-it", messages, max_tokens: 5 }), Anthropic.NotFoundError);
  },
};
for (const [name, provider] of Object.entries(providers)) {
  checks[`ai_streams_by_${name}`] = () => streamed(provider);
  checks[`ai_uses_a_tool_by_${name}`] = () => withTool(provider);
  checks[`ai_keeps_a_schema_by_${name}`] = () => structured(provider);
}

Object.assign(checks, {
  async responses_are_made_and_streamed() {
    const answer = await openai.responses.create({ model, input: "Hello!", temperature: 0 });
    let text = "";
    for await (const event of await openai.responses.create({ model, input: "Hello!", temperature: 0, stream: true })) {
      if (event.type === "response.output_text.delta") text += event.delta;
    }
    assert.equal(text, answer.output_text);
    assert(text.length > 0);
    await assert.rejects(openai.responses.create({ model, input: "x", temprature: 1 }), OpenAI.BadRequestError);
  },
});

for (const [name, check] of Object.entries(checks)) {
  await check();
  console.log("held:", name);
}
console.log(`${Object.keys(checks).length} held`);
