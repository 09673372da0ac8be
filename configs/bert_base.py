"""BERT base, pre-trained as published (Devlin et al. 2019, appendix A.2).

python train.py --config configs/bert_base.py --workdir runs/bert128 --data.train *.txt
python train.py --config configs/bert_base.py --workdir runs/bert --data.train *.txt \
    --train.init-from runs/bert128 --data.block-length 512 --data.batch-size 8 \
    --train.accumulate 32 --train.steps 100000 --optimizer.learning-rate 1e-5 \
    --optimizer.warmup-steps 0 --optimizer.final-factor 0

One sentence a line, a blank line between documents. 110,106,428 parameters with a vocabulary of
30,522 as published. It is learnt from the text, lower-cased (--data.normalization identity: as it
is); the published one is
    --data.tokenizer file --data.tokenizer-file vocab.txt

256 rows a step, here 8 micro-batches of 32. The first 900,000 of a million steps have rows of 128
tokens and the others, the second command, of 512; the rate falls along one line over both, to a
tenth in the first and to 0 in the second. Adam's moments begin anew between them. Whole words are
hidden with --data.whole-words.

Plan (--plan v5e:2x2 --model.scan-layers): 4 chips, data 4, 3.61 GiB of each chip's 15.75.
"""

from transformer.config import Config, DataConfig, ModelConfig, OptimizerConfig, TrainConfig

config = Config(
    model=ModelConfig(
        architecture="encoder",
        num_layers=12,
        model_dim=768,
        ff_dim=3072,
        num_heads=12,
        positions="learned",
        max_positions=512,
        segment_types=2,
        activation="gelu",
        norm_epsilon=1e-12,
        attention_bias=True,
        output_bias=True,
        embedding_norm=True,
        embedding_scaling="none",
        initializer="normal",
        dropout=0.1,
        attention_dropout=0.1,
    ),
    data=DataConfig(
        objective="masked_language_model",
        dataset="files",
        train=("train.txt",),
        documents="paragraph",
        validation_fraction=0.005,
        tokenizer="wordpiece",
        vocab_size=30_522,
        normalization="nfkc_cf",
        block_length=128,
        batch_size=32,
    ),
    optimizer=OptimizerConfig(
        schedule="linear",
        learning_rate=1e-4,
        warmup_steps=10_000,
        final_factor=0.1,
        beta1=0.9,
        beta2=0.999,
        epsilon=1e-6,
        clip_norm=1.0,
        weight_decay=0.01,
        decay_embeddings=True,
    ),
    train=TrainConfig(steps=900_000, accumulate=8, label_smoothing=0.0, eval_every=10_000),
)
