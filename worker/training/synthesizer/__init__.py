"""The synthesizer: a compact Tacotron 2 (Shen et al., 2018) conditioned on a speaker embedding (Jia et al., 2018)."""
