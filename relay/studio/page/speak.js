// Speech over WebRTC: an offer to hear (WHEP), a data channel for text, and words marked while they are heard.
const ENDPOINT = "/v1/whep";
const BUFFER_MS = 50;
const OPEN_WITHIN_MS = 15000;

// `<turn:…>; rel="ice-server"; username="…"; credential="…"`, between commas (RFC 9725, section 4.6).
function readServers(links) {
  return [...(links ?? "").matchAll(/<([^>]+)>([^<]*)/g)].map(([, urls, rest]) => {
    const read = (name) => rest.match(new RegExp(`${name}="([^"]*)"`))?.[1];
    return { urls, username: read("username"), credential: read("credential") };
  });
}

async function ask(method, path, key, body) {
  const headers = { Authorization: `Bearer ${key}` };
  if (body) headers["Content-Type"] = "application/sdp";
  const response = await fetch(path, { method, headers, body });
  if (!response.ok) throw new Error((await response.json()).detail ?? `HTTP ${response.status}`);
  return response;
}

export class Line {
  // `told` is called with every message of the relay.
  constructor(player, told) {
    this.player = player;
    this.told = told;
    this.contexts = 0;
  }

  async connect(key) {
    const options = await ask("OPTIONS", ENDPOINT, key);
    this.peer = new RTCPeerConnection({ iceServers: readServers(options.headers.get("Link")) });
    const { receiver } = this.peer.addTransceiver("audio", { direction: "recvonly" });
    if ("jitterBufferTarget" in receiver) receiver.jitterBufferTarget = BUFFER_MS;
    this.peer.addEventListener("track", ({ track }) => { this.player.srcObject = new MediaStream([track]); });
    this.channel = this.peer.createDataChannel("timbrelay");
    this.channel.addEventListener("message", ({ data }) => this.told(JSON.parse(data)));
    await this.peer.setLocalDescription();
    const answer = await ask("POST", ENDPOINT, key, this.peer.localDescription.sdp);
    await this.peer.setRemoteDescription({ type: "answer", sdp: await answer.text() });
    await new Promise((resolve, reject) => {
      this.channel.addEventListener("open", resolve);
      setTimeout(() => reject(new Error("no connection: the relay's UDP ports cannot be reached")), OPEN_WITHIN_MS);
    });
    this.player.play();
  }

  get open() {
    return this.channel?.readyState === "open";
  }

  say(message) {
    this.channel.send(JSON.stringify(message));
  }

  // The name of the context that speaks it.
  speak(voice, text) {
    const context = `page-${this.contexts++}`;
    this.say({ type: "open", context, voice });
    this.say({ type: "text", context, text });
    this.say({ type: "end", context });
    return context;
  }

  close() {
    this.peer?.close();
  }
}

// Shows a text in an element, and marks each word while it is heard.
export class Words {
  constructor(element, text) {
    this.element = element;
    this.text = text;
    this.shown = 0;
    this.spans = [];
    this.origin = null;
    this.rest = document.createTextNode(text);
    element.replaceChildren(this.rest);
  }

  // Texts are counted in code points, as the relay does.
  add(words) {
    const points = Array.from(this.text);
    for (const word of words) {
      const span = document.createElement("mark");
      span.textContent = points.slice(word.start, word.end).join("");
      this.rest.before(points.slice(this.shown, word.start).join(""), span);
      this.shown = word.end;
      this.spans.push([span, word]);
    }
    this.rest.textContent = points.slice(this.shown).join("");
  }

  // The audio is heard from `at_ms` on, as soon as it has passed the browser's own buffer.
  play(atMs) {
    const waits = this.origin === null;
    this.origin = performance.now() + BUFFER_MS - atMs;
    if (waits) this.mark();
  }

  stop() {
    this.origin = null;
    this.spans.forEach(([span]) => span.classList.remove("now"));
  }

  mark() {
    if (this.origin === null) return;
    const now = performance.now() - this.origin;
    for (const [span, word] of this.spans) {
      span.classList.toggle("now", word.start_ms <= now && now < word.end_ms);
      if (now >= word.start_ms) span.classList.add("heard");
    }
    requestAnimationFrame(() => this.mark());
  }
}
