// Consent first, then the sample: the order of the API (docs/api.md). The voice that comes of it can be heard at once.
import { Line, Words } from "./speak.js";

const SHORTEST_MS = 5000;
const LONGEST_MS = 15000;
const WAIT_S = 20;

const find = (id) => document.getElementById(id);
const [form, record, send, outcome, time] = ["form", "record", "send", "outcome", "time"].map(find);
let statements = [];
let sample = null;
let recorder = null;
let line = null;
let words = null;
let context = null;
let voiceId = null;

function tell(text, kind = "") {
  outcome.textContent = text;
  outcome.dataset.kind = kind;
}

async function call(method, path, { json, body } = {}) {
  const headers = { Authorization: `Bearer ${find("key").value.trim()}` };
  if (json) headers["Content-Type"] = "application/json";
  const response = await fetch(path, { method, headers, body: json ? JSON.stringify(json) : body });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.detail ?? answer.title ?? `HTTP ${response.status}`);
  return answer;
}

function chosenStatement() {
  return statements.find((statement) => statement.language === find("language").value);
}

function fillIn(statement) {
  return ["signer", "tenant", "purpose"].reduce(
    (text, name) => text.replaceAll(`{${name}}`, find(name).value.trim() || "…"),
    statement.text,
  );
}

function showStatement() {
  const statement = chosenStatement();
  find("statement").textContent = statement ? fillIn(statement) : "";
}

async function loadStatements() {
  const answer = await (await fetch("/v1/consents/statements")).json();
  statements = answer.statements;
  find("language").replaceChildren(...statements.map((statement) => new Option(statement.language)));
  showStatement();
}

function watchLevel(stream) {
  const context = new AudioContext();
  const analyser = context.createAnalyser();
  context.createMediaStreamSource(stream).connect(analyser);
  const samples = new Float32Array(analyser.fftSize);
  const timer = setInterval(() => {
    analyser.getFloatTimeDomainData(samples);
    find("level").value = Math.min(1, 3 * Math.max(...samples.map(Math.abs)));
  }, 50);
  return () => { clearInterval(timer); context.close(); find("level").value = 0; };
}

async function startRecording() {
  // What a browser does to make a call pleasant takes away from the voice.
  const audio = { echoCancellation: false, noiseSuppression: false, autoGainControl: false, channelCount: 1 };
  const stream = await navigator.mediaDevices.getUserMedia({ audio });
  const parts = [];
  const started = Date.now();
  const unwatch = watchLevel(stream);
  const clock = setInterval(() => { time.textContent = `${((Date.now() - started) / 1000).toFixed(1)} s`; }, 100);
  const limit = setTimeout(() => recorder.stop(), LONGEST_MS);
  recorder = new MediaRecorder(stream, { audioBitsPerSecond: 96000 });
  recorder.ondataavailable = (event) => parts.push(event.data);
  recorder.onstop = () => {
    clearTimeout(limit);
    clearInterval(clock);
    unwatch();
    stream.getTracks().forEach((track) => track.stop());
    keepSample(new Blob(parts, { type: recorder.mimeType }), Date.now() - started);
    recorder = null;
    record.textContent = "Record again";
  };
  recorder.start();
  record.textContent = "Stop";
}

function keepSample(blob, lasted) {
  const enough = lasted >= SHORTEST_MS;
  sample = enough ? blob : null;
  time.textContent = enough ? `${(lasted / 1000).toFixed(1)} s recorded` : "That was short: 5 seconds at the least.";
  send.disabled = !enough;
  const preview = find("preview");
  URL.revokeObjectURL(preview.src);
  preview.hidden = !enough;
  if (enough) preview.src = URL.createObjectURL(blob);
}

async function enrol() {
  const statement = chosenStatement();
  const consent = await call("POST", "/v1/consents", {
    json: {
      signer: find("signer").value.trim(),
      statement: fillIn(statement),
      statement_version: statement.version,
      language: statement.language,
      purpose: find("purpose").value.trim(),
    },
  });
  const body = new FormData();
  body.append("name", find("name").value.trim());
  body.append("consent", consent.id);
  body.append("recording", sample, "sample");
  const pending = await call("POST", "/v1/voices", { body });
  tell("Listening to your sample …");
  return call("GET", `/v1/voices/${pending.id}?wait=${WAIT_S}`);
}

function tellLine(text, kind = "") {
  find("line").textContent = text;
  find("line").dataset.kind = kind;
}

// What the relay says while it speaks; what concerns an older text is passed over.
function follow(message) {
  if (message.type === "closing") tellLine(message.reason || "the relay has closed the connection", "error");
  if (message.type === "error" && [context, null].includes(message.context)) tellLine(message.message, "error");
  if (message.context !== context || words === null) return;
  if (message.type === "words") words.add(message.words);
  if (message.type === "playing") words.play(message.at_ms);
  if (["played", "cancelled", "error"].includes(message.type)) {
    words.stop();
    find("hush").disabled = true;
    find("line").dataset.state = message.type;
  }
}

async function speak() {
  tellLine("");
  if (!line?.open) {
    line?.close();
    line = new Line(find("player"), follow);
    await line.connect(find("key").value.trim());
  }
  if (!find("hush").disabled) line.say({ type: "cancel", context });
  words?.stop();
  words = new Words(find("heard"), find("text").value);
  find("line").dataset.state = "speaking";
  context = line.speak(voiceId, find("text").value);
  find("hush").disabled = false;
}

record.addEventListener("click", () => {
  if (recorder) recorder.stop();
  else startRecording().catch((error) => tell(`The microphone cannot be used: ${error.message}`, "error"));
});
form.addEventListener("input", showStatement);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  send.disabled = true;
  enrol()
    .then((voice) => {
      if (voice.state === "ready") {
        tell(`Your voice is ready. Its id is ${voice.id}.`);
        voiceId = voice.id;
        find("speaking").hidden = false;
      } else tell(voice.error?.message ?? `The voice is ${voice.state}; look again in a moment.`, "error");
    })
    .catch((error) => tell(error.message, "error"))
    .finally(() => { send.disabled = sample === null; });
});
find("speak").addEventListener("submit", (event) => {
  event.preventDefault();
  speak().catch((error) => tellLine(error.message, "error"));
});
find("hush").addEventListener("click", () => line.say({ type: "cancel", context }));
loadStatements().catch(() => tell("The relay does not answer; load the page again.", "error"));
