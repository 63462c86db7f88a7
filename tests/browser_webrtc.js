// Run in a page of the relay's origin, with (path, key, messages, done): hears everything that the messages ask for.
const [path, key, messages, done] = arguments;
const worklet = `registerProcessor("ear", class extends AudioWorkletProcessor {
  process(inputs) {
    const samples = inputs[0][0];
    if (samples) {
      let peak = 0, energy = 0;
      for (const sample of samples) { peak = Math.max(peak, Math.abs(sample)); energy += sample * sample; }
      this.port.postMessage([currentFrame, peak, energy]);
    }
    return true;
  }
});`;
const LOUD = 0.02;

async function listen() {
  const context = new AudioContext({ sampleRate: 48000, latencyHint: "interactive" });
  await context.audioWorklet.addModule(URL.createObjectURL(new Blob([worklet], { type: "text/javascript" })));
  const peer = new RTCPeerConnection();
  const { receiver } = peer.addTransceiver("audio", { direction: "recvonly" });
  if ("jitterBufferTarget" in receiver) receiver.jitterBufferTarget = 50;
  const heard = { blocks: [], told: [], mels: [], loudAt: 0, saidAt: 0, connectedMs: 0 };
  peer.ontrack = ({ track }) => {
    const stream = new MediaStream([track]);
    // Chromium gives WebAudio nothing of a remote track that no element plays.
    const player = new Audio();
    player.srcObject = stream;
    player.muted = true;
    const ear = new AudioWorkletNode(context, "ear");
    ear.port.onmessage = ({ data }) => {
      if (!heard.loudAt && heard.saidAt && data[1] > LOUD) heard.loudAt = performance.now();
      heard.blocks.push(data);
    };
    context.createMediaStreamSource(stream).connect(ear);
  };
  const channel = peer.createDataChannel("timbrelay");
  channel.binaryType = "arraybuffer";
  const over = new Promise((resolve, reject) => {
    channel.onmessage = ({ data }) => {
      if (typeof data !== "string") { heard.mels.push(Array.from(new Uint8Array(data))); return; }
      const message = JSON.parse(data);
      heard.told.push(message);
      if (message.type === "error") reject(new Error(JSON.stringify(message)));
      if (message.type === "played") setTimeout(resolve, 400);
    };
  });
  const began = performance.now();
  await peer.setLocalDescription();
  const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/sdp" };
  const answer = await fetch(path, { method: "POST", headers, body: peer.localDescription.sdp });
  if (answer.status !== 201) throw new Error(await answer.text());
  await peer.setRemoteDescription({ type: "answer", sdp: await answer.text() });
  await new Promise((resolve) => { channel.onopen = resolve; });
  heard.connectedMs = performance.now() - began;
  // Silence first, as in a conversation: the browser's buffer has found its length.
  await new Promise((resolve) => setTimeout(resolve, 1500));
  heard.blocks.length = 0;
  heard.saidAt = performance.now();
  for (const message of messages) channel.send(JSON.stringify(message));
  await over;
  const report = [...(await peer.getStats()).values()].find((stats) => stats.type === "inbound-rtp");
  heard.stats = {
    lost: report.packetsLost, concealed: report.concealedSamples, received: report.totalSamplesReceived,
    bufferMs: 1000 * report.jitterBufferDelay / report.jitterBufferEmittedCount,
  };
  peer.close();
  await context.close();
  const loud = heard.blocks.filter(([, peak]) => peak > LOUD);
  return {
    ...heard, blocks: heard.blocks.length, rate: 48000, energy: heard.blocks.reduce((sum, block) => sum + block[2], 0),
    loudS: loud.length ? (loud.at(-1)[0] - loud[0][0] + 128) / 48000 : 0,
    firstLoudMs: heard.loudAt - heard.saidAt,
  };
}

listen().then(done, (error) => done({ error: String(error) }));
