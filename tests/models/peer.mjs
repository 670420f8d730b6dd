// llama.cpp, prebuilt in the package node-llama-cpp: tokens, greedy texts, log probabilities and speed of one GGUF file.
//
//   node tests/models/peer.mjs MODULES FILE THREADS      one request a line on standard input, one reply a line
//
// Speed is that of llama.cpp's own steps: nothing is sampled, and no text is made of the tokens.

import {createInterface} from "node:readline";
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";

const [modules, file, threads] = process.argv.slice(2);
const {getLlama} = await import(pathToFileURL(createRequire(`${modules}/`).resolve("node-llama-cpp")));
const CHUNK = 512;
const llama = await getLlama({gpu: false, build: "never", maxThreads: Number(threads), logLevel: "error"});
const model = await llama.loadModel({modelPath: file});
const vocabulary = model._model;

function tokenize({text}) {
    const tokens = [...vocabulary.tokenize(text, false)];
    return vocabulary.shouldPrependBosToken() ? [vocabulary.tokenBos(), ...tokens] : tokens;
}

function piece(token) {
    return vocabulary.detokenize(Uint32Array.from([token]), true);
}

// The most likely tokens that continue these, until the text ends.
async function greedy({tokens, count}) {
    return within(tokens.length + count, 1, async (steps) => {
        const found = [];
        for (let next = tokens; found.length < count;) {
            const token = await steps.sample(await steps.read(next));
            if (vocabulary.isEogToken(token)) break;
            found.push(token);
            next = [token];
        }
        return {tokens: found, pieces: found.map(piece)};
    });
}

// The most likely tokens after these, with their log probabilities.
async function candidates({tokens, top}) {
    return within(tokens.length, 1, async (steps) => {
        const [, odds] = await steps.sample(await steps.read(tokens), true);
        const pairs = [];
        for (let i = 0; i < odds.length; i += 2) pairs.push([odds[i], Math.log(odds[i + 1])]);
        pairs.sort((one, other) => other[1] - one[1]);
        return pairs.slice(0, top).map(([id, odds]) => ({id, odds, text: piece(id), ends: vocabulary.isEogToken(id)}));
    });
}

// Tokens per second, a name with each: prompts of `prompt` tokens, and decoding of so many streams after `context` tokens.
async function speed({prompt, context, streams, steps: count}) {
    const found = [];
    const filler = (length, seed) => Array.from({length}, (_, i) => 1000 + (i * 37 + seed * 101) % 20000);
    found.push([`prefill ${prompt}`, await within(prompt, 1, async (steps) => {
        await steps.read(filler(prompt, 1));
        steps.forget();
        return timed(prompt, () => steps.read(filler(prompt, 2)));
    })]);
    for (const width of streams)
        found.push([`decode ${width}`, await within(context + count + 2, width, async (steps) => {
            for (let stream = 0; stream < width; stream++) await steps.read(filler(context, stream), stream);
            await steps.step(width, 1000);
            return timed(width * count, async () => {
                for (let step = 0; step < count; step++) await steps.step(width, 1001 + step);
            });
        })]);
    return found;
}

async function timed(tokens, work) {
    const began = performance.now();
    await work();
    return tokens / (performance.now() - began) * 1000;
}

// A context for so many sequences of so many tokens, while `work` runs.
async function within(length, sequences, work) {
    const contextSize = Math.ceil((length + 1) / 256) * 256;
    const context = await model.createContext({
        contextSize, sequences, batchSize: CHUNK, threads: Number(threads), flashAttention: true
    });
    try {
        return await work(new Steps(context._ctx, sequences));
    } finally {
        await context.dispose();
    }
}

class Steps {
    constructor(context, sequences) {
        this.context = context;
        this.lengths = Array(sequences).fill(0);
        this.sampler = new llama._bindings.AddonSampler(vocabulary);
        this.sampler.applyConfig({temperature: 0});
    }

    // Reads these tokens and answers where the logits after the last one are.
    async read(tokens, sequence = 0) {
        let logits;
        for (let start = 0; start < tokens.length; start += CHUNK) {
            const part = Uint32Array.from(tokens.slice(start, start + CHUNK));
            const wanted = start + CHUNK >= tokens.length ? [part.length - 1] : [];
            this.context.initBatch(part.length);
            [logits] = this.context.addToBatch(sequence, this.lengths[sequence], part, Uint32Array.from(wanted));
            await this.context.decodeBatch();
            this.lengths[sequence] += part.length;
        }
        return logits;
    }

    // One token more in each of the first sequences.
    async step(width, token) {
        this.context.initBatch(width);
        for (let sequence = 0; sequence < width; sequence++)
            this.context.addToBatch(sequence, this.lengths[sequence]++, Uint32Array.from([token + sequence]), Uint32Array.from([0]));
        await this.context.decodeBatch();
    }

    // The most likely token; with `all`, a list of it and all tokens' probabilities.
    async sample(logits, all = false) {
        return await (all ? this.context.sampleToken(logits, this.sampler, true) : this.context.sampleToken(logits, this.sampler));
    }

    forget() {
        this.context.disposeSequence(0);
        this.lengths[0] = 0;
    }
}

const requests = {tokenize, greedy, candidates, speed};
for await (const line of createInterface({input: process.stdin})) {
    const {request, ...given} = JSON.parse(line);
    console.log(JSON.stringify(await requests[request](given)));
}
process.exit(0);
