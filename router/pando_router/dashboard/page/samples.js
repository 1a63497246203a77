// An example body for each path of the data path.

const TURN = [{ role: "user", content: "What is a grove?" }];
const TEXTS = ["A grove is a small wood.", "A pando is one tree with many trunks."];

const SAMPLES = {
  "/v1/chat/completions": (model) => ({ model, messages: TURN }),
  "/v1/completions": (model) => ({ model, prompt: "A grove is" }),
  "/v1/responses": (model) => ({ model, input: "What is a grove?" }),
  "/v1/messages": (model) => ({ model, max_tokens: 64, messages: TURN }),
  "/v1/messages/count_tokens": (model) => ({ model, messages: TURN }),
  "/generate": (model) => ({ model, text: "A grove is", sampling_params: { max_new_tokens: 32 } }),
  "/v1/embeddings": (model) => ({ model, input: TEXTS }),
  "/classify": (model) => ({ model, input: TEXTS }),
  "/v1/classify": (model) => ({ model, input: TEXTS }),
  "/rerank": (model) => ({ model, query: "What is a grove?", documents: TEXTS }),
  "/v1/rerank": (model) => ({ model, query: "What is a grove?", documents: TEXTS }),
  "/score": (model) => ({ model, text_1: "What is a grove?", text_2: TEXTS }),
  "/v1/score": (model) => ({ model, text_1: "What is a grove?", text_2: TEXTS }),
  "/tokenize": (model) => ({ model, prompt: "A grove is" }),
  "/detokenize": (model) => ({ model, tokens: [1, 2, 3] }),
};
