// Run in a page of the relay's origin, with (path, key, consent, seconds, done): enrols what the microphone hears.
const [path, key, consent, seconds, done] = arguments;

async function capture() {
  const audio = { echoCancellation: false, noiseSuppression: false, autoGainControl: false, channelCount: 1 };
  const stream = await navigator.mediaDevices.getUserMedia({ audio });
  const peer = new RTCPeerConnection();
  peer.addTransceiver(stream.getAudioTracks()[0], { direction: "sendrecv", streams: [stream] });
  const channel = peer.createDataChannel("timbrelay");
  const answered = new Promise((resolve) => {
    channel.onmessage = ({ data }) => {
      const message = JSON.parse(data);
      if (message.type === "capturing") {
        setTimeout(() => channel.send(JSON.stringify({ type: "capture", action: "stop" })), 1000 * seconds);
      }
      if (["captured", "error"].includes(message.type)) resolve(message);
    };
  });
  await peer.setLocalDescription();
  const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/sdp" };
  const answer = await fetch(path, { method: "POST", headers, body: peer.localDescription.sdp });
  await peer.setRemoteDescription({ type: "answer", sdp: await answer.text() });
  await new Promise((resolve) => { channel.onopen = resolve; });
  channel.send(JSON.stringify({ type: "capture", action: "start", consent, name: "From a browser" }));
  const message = await answered;
  peer.close();
  return message;
}

capture().then(done, (error) => done({ type: "failed", error: String(error) }));
