"""Speech over WebRTC: signalling by WHEP and Pipecat's SmallWebRTC, an Opus track, a data channel, a microphone."""
