// The pages in a browser, as a person uses them: check_pages.mjs URL KEY.
import assert from "node:assert";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { chromium } from "playwright-core";

const [url, key] = process.argv.slice(2);
const home = process.env.MUSTER_TEST_BROWSER;
const folder = import.meta.dirname;
const browser = await chromium.launch({
  executablePath: path.join(home, "chromium"),
  env: { ...process.env, LD_LIBRARY_PATH: path.join(home, "lib") },
  args: ["--no-sandbox", "--no-zygote", "--disable-gpu", "--autoplay-policy=no-user-gesture-required"],
});
const page = await browser.newPage();
page.setDefaultTimeout(60_000);
const errors = [];
page.on("pageerror", (error) => errors.push(error.message));
page.on("console", (message) => message.text().includes("Content Security Policy") && errors.push(message.text()));
page.on("dialog", (dialog) => dialog.accept());
const button = (name) => page.getByRole("button", { name, exact: true });

const ask = (route, body, by = key) => fetch(url + route, {
  method: "POST", body: JSON.stringify(body), headers: { authorization: `Bearer ${by}`, "content-type": "application/json" },
});

async function make(tab, prompt, file) {
  await button(tab).click();
  if (file) await page.setInputFiles("#file", file);
  if (prompt) await page.fill("#prompt", prompt);
  await button("Send").click();
  await page.waitForSelector("#stop", { state: "hidden" });
  await page.waitForSelector("#go:enabled");
  const bad = page.locator("#log .bad");
  assert.equal(await bad.count(), 0, (await bad.allInnerTexts()).join("; "));
}

// The key leaves the address at once.
await page.goto(`${url}/#key=${key}`);
await page.waitForSelector("#tabs button");
assert.equal(page.url(), url + "/");
await page.locator("#signed-in").getByText("admin#1").waitFor();
const tabs = await page.locator("#tabs button").allInnerTexts();
assert.deepEqual(tabs, ["Chat", "Image", "Speech", "Transcript", "Music", "Video"]);

await make("Chat", "What is Muster?");
assert.match(await page.locator("#log .said").last().innerText(), /Muster/);
await make("Image", "a big red circle on a blue background");
const width = () => page.locator("#log img").evaluate((image) => image.decode().then(() => image.naturalWidth));
assert.ok(await width() >= 64);
const drawn = await page.locator("#log img").getAttribute("src");
const picture = path.join(folder, "picture.png");
await writeFile(picture, Buffer.from(drawn.split(",")[1], "base64"));
await make("Image", "a big green circle on a blue background", picture);
assert.notEqual(await page.locator("#log img").getAttribute("src"), drawn);
assert.equal(await page.locator("#log .note").count(), 0);
await make("Image", "a red dragon on blue");
const note = await page.locator("#log .note").innerText();
assert.match(note, /demo-image does not know these words: dragon; words that the model knows: .*circle.*yellow/);

const loaded = (tag) => page.locator(`#log ${tag}`).evaluate((made) => new Promise((resolve, reject) => {
  if (made.readyState >= 1) resolve(made.duration);
  made.addEventListener("loadedmetadata", () => resolve(made.duration));
  made.addEventListener("error", () => reject(new Error(made.error.message)));
}));
await make("Speech", "Good morning.");
assert.ok(await loaded("audio") > 0.3);
const speech = await ask("/v1/audio/speech", { model: "demo-speech", input: "Good morning." });
const sound = path.join(folder, "speech.mp3");
await writeFile(sound, Buffer.from(await speech.arrayBuffer()));
await make("Transcript", null, sound);
assert.match(await page.locator("#log .said").last().innerText(), /good morning/i);
await make("Music", "a fast bell melody that rises from C");
assert.ok(await loaded("audio") > 1);
await make("Video", "a red circle moves to the right on a blue background");
assert.ok(await page.locator("#log video").count() === 1);
assert.ok(await loaded("video") > 0.5);

// A request that is stopped ends, and is cancelled where it runs.
await page.fill("#prompt", "a red circle moves to the left on a blue background");
await button("Send").click();
await button("Stop").click();
await page.waitForSelector("#go:enabled");
assert.equal(await page.locator("#log video").count(), 1);

// The same key opens the console.
await page.getByRole("link", { name: "Console" }).click();
await page.waitForSelector("#keys button");
const models = await page.locator("#models tr").allInnerTexts();
for (const name of ["demo-text", "demo-image", "demo-music"]) assert.ok(models.some((row) => row.includes(name)), models.join("; "));
const hearing = models.filter((row) => row.includes("demo-hearing"));
assert.ok(hearing.length === 1 && hearing[0].includes("audio"), hearing.join("; "));
const jobs = await page.locator("#jobs tr").allInnerTexts();
assert.ok(jobs.some((row) => row.includes("demo-speech") && row.includes("delivered")), jobs.join("; "));

// The nodes of a cluster, and which of them is cut off.
assert.equal(await page.locator("#nodes").isVisible(), false);
const node = (address, role, status) => ({ address, role, status });
const cluster = { epoch: 2, nodes: [node("http://a:1", "leader", "ready"), node("http://b:1", "follower", "cut_off")] };
const problems = [{ part: "cluster", cause: "the coordinator at http://b:1 was last heard 4 s ago" }];
await page.route("**/health", (route) => route.fulfill({ json: { cluster, problems } }));
await page.reload();
await page.locator("#nodes tr", { hasText: "http://b:1" }).getByText("cut off").waitFor();
await page.locator("#nodes tr", { hasText: "http://a:1" }).getByText("leads").waitFor();
await page.locator("#warnings").getByText("http://b:1 was last heard").waitFor();
await page.unroute("**/health");
await page.reload();
await page.waitForSelector("#keys button");

// A key is created, works, and is refused once it is revoked.
await page.fill("#label", "laptop");
await page.getByLabel("read the account").check();
await button("Create a key").click();
const made = await page.locator("#made code").innerText();
const chat = { model: "demo-text", messages: [{ role: "user", content: "Hi." }] };
assert.equal((await ask("/v1/chat/completions", chat, made)).status, 200);
const row = page.locator("#keys tr", { hasText: "laptop" });
assert.match(await row.innerText(), /send requests, read the account/);
await row.getByRole("button", { name: "Revoke" }).click();
await row.getByText("revoked").waitFor();
assert.equal((await ask("/v1/chat/completions", chat, made)).status, 401);

// The owner's decision about the worker is kept.
const worker = page.locator("#own-workers");
await worker.getByRole("button", { name: "Take only your jobs" }).click();
await worker.getByText("only your jobs", { exact: true }).waitFor();
await worker.getByRole("button", { name: "Take jobs of others" }).click();
await worker.getByText("online").waitFor();

// Moderators: a mode of the service is said to everybody.
await page.getByRole("link", { name: "Moderation" }).click();
await page.getByLabel(/Maintenance/).check();
await page.getByRole("link", { name: "Console" }).click();
await page.locator("#warnings").getByText("maintenance").waitFor();
await page.goBack();
await page.getByLabel(/Maintenance/).uncheck();
await page.getByLabel(/Maintenance/).and(page.locator(":not(:checked)")).waitFor();

// A filter is created, finds its prompt, and is deleted.
await page.fill("#regex", "blue whale");
await page.fill("#description", "no whales");
await button("Create a filter").click();
const filter = page.locator("#filters tr", { hasText: "no whales" });
await filter.waitFor();
await page.fill("#prompt", "a blue whale");
await button("Try all filters").click();
await page.locator("#verdict").getByText("blue whale").waitFor();
await page.fill("#regex", "(");
await button("Create a filter").click();
await page.locator("#trouble").waitFor();
await filter.getByRole("button", { name: "Delete" }).click();
await filter.waitFor({ state: "detached" });
await page.locator("#trouble").waitFor({ state: "hidden" });

// An address is blocked and let in again; users are listed with their roles.
await page.fill("#address", "203.0.113.7");
await button("Block").click();
const block = page.locator("#blocks tr", { hasText: "203.0.113.7" });
await block.getByRole("button", { name: "Unblock" }).click();
await block.waitFor({ state: "detached" });
const user = page.locator("#users tr", { hasText: "admin#1" });
await user.getByText("trusted").waitFor();

// A wrong key shows nothing of an account, and says so.
await page.goto(`${url}/console`);
await page.waitForSelector("#keys button");
await page.fill("#key", "wrong");
await page.press("#key", "Enter");
await page.locator("#trouble").getByText("type your key above").waitFor();
assert.equal(await page.locator("#account").isVisible(), false);

await page.goto(`${url}/docs`);
await page.getByText("/v1/chat/completions").first().waitFor();

// A link with another key than the tab has says whose it is, and asks before it replaces the key.
const asked = [];
page.on("dialog", (dialog) => asked.push(dialog.message()));
await page.goto(`${url}/console#key=${key}`);
await page.waitForSelector("#keys button");
assert.ok(asked.length === 1 && asked[0].includes("admin#1"), asked.join("; "));
await browser.close();
assert.deepEqual(errors, []);
console.log("ok");
