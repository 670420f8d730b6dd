// The owner's page of `worker up` in a browser, as its owner uses it: check_owners_page.mjs URL KEY.
import assert from "node:assert";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { chromium } from "playwright-core";

const [url, key] = process.argv.slice(2);
const home = process.env.MUSTER_TEST_BROWSER;
const browser = await chromium.launch({
  executablePath: path.join(home, "chromium"),
  env: { ...process.env, LD_LIBRARY_PATH: path.join(home, "lib") },
  args: ["--no-sandbox", "--no-zygote", "--disable-gpu"],
});
const context = await browser.newContext({ viewport: { width: 360, height: 740 } });
context.setDefaultTimeout(60_000);
const errors = [], requests = [];
context.on("weberror", (error) => errors.push(error.error().message));
context.on("console", (message) => message.text().includes("Content Security Policy") && errors.push(message.text()));
context.on("request", (request) => requests.push(request.url()));

// The console of the same program leads to it.
const chat = { model: "demo-text", messages: [{ role: "user", content: "What is Muster?" }] };
const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
assert.equal((await fetch(url + "/v1/chat/completions", { method: "POST", headers, body: JSON.stringify(chat) })).status, 200);
const console_ = await context.newPage();
await console_.goto(`${url}/console#key=${key}`);
const [page] = await Promise.all([context.waitForEvent("page"), console_.getByRole("link", { name: "Worker of this machine" }).click()]);
await page.locator("#models tr", { hasText: "demo-text" }).first().waitFor();
const origin = new URL(page.url()).origin;
// The token leaves the address at once.
assert.equal(page.url(), origin + "/");
assert.match(await page.title(), /Muster/);
assert.match(await page.locator("#state").innerText(), /^Takes jobs/);
const coordinator = page.locator("#coordinators tr", { hasText: "connected" });
await coordinator.waitFor();
assert.match(await page.locator("#figures div", { hasText: "Jobs today" }).innerText(), /1/);
assert.equal(await page.locator("#plots svg").count(), 6);
await page.getByRole("button", { name: "Week" }).click();
await page.locator("[data-span=week][aria-pressed=true]").waitFor();

// Nothing is wider than a telephone, and nothing comes from elsewhere.
const width = await page.evaluate(() => document.documentElement.scrollWidth);
assert.ok(width <= 360, `the page is ${width} pixels wide`);

// The owner pauses and resumes.
await page.getByRole("button", { name: "Pause", exact: true }).click();
await page.locator("#state", { hasText: "Paused" }).waitFor();
await page.locator("#causes", { hasText: "by command" }).waitFor();
await page.getByRole("button", { name: "Resume" }).click();
await page.locator("#state", { hasText: "Takes jobs" }).waitFor();

// A rule is changed in the file, and a wrong one is refused.
const rule = page.locator(".rule", { hasText: "owner.pause_for" });
await rule.locator("input").fill("muster-no-game, blender");
await rule.getByRole("button", { name: "Set" }).click();
await page.locator('[data-said="owner.pause_for"]', { hasText: "in force" }).waitFor();
const file = await readFile(path.join(import.meta.dirname, "worker.toml"), "utf8");
assert.match(file, /^# A comment of the owner\.$/m);
assert.match(file, /pause_for = \["muster-no-game", "blender"\]/);
const load = page.locator(".rule", { hasText: "owner.others_load" });
await load.locator("input").fill("lots");
await load.getByRole("button", { name: "Set" }).click();
await page.locator("#trouble", { hasText: "owner.others_load must be an integer" }).waitFor();

// Models with their verdicts, the doctor and the log.
await page.locator("#catalog tr").nth(2).waitFor();
await page.getByRole("button", { name: "Examine this machine" }).click();
await page.locator("#checks tr", { hasText: "disk for models" }).waitFor();
await page.locator("#log", { hasText: "INFO" }).waitFor();

// Without its token the page asks for one.
const stranger = await browser.newContext();
const empty = await stranger.newPage();
await empty.goto(origin + "/");
await empty.locator("#sign-in").waitFor();
assert.equal(await empty.locator("#main").isVisible(), false);
await empty.fill("#token", "wrong");
await empty.getByRole("button", { name: "Open" }).click();
await empty.locator("#trouble", { hasText: "worker page" }).waitFor();

const foreign = requests.filter((one) => ![url, origin].includes(new URL(one).origin) && !one.startsWith("data:"));
assert.deepEqual(foreign, []);
await browser.close();
assert.deepEqual(errors, []);
console.log("ok");
