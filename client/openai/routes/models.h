// The routes /v1/models, /v1/models/{id} and /health.
#ifndef TLM_CLIENT_OPENAI_ROUTES_MODELS_H_
#define TLM_CLIENT_OPENAI_ROUTES_MODELS_H_

#include "client/openai/routes/front.h"

namespace tlm::openai {

void ListModels(Front* front, const Incoming& incoming);
void OneModel(Front* front, const Incoming& incoming);

// 200 if each model has a replica that serves, otherwise 503.
void Health(Front* front, const Incoming& incoming);

}  // namespace tlm::openai

#endif  // TLM_CLIENT_OPENAI_ROUTES_MODELS_H_
