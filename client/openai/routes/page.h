// The page for people at /, and its data.
#ifndef TLM_CLIENT_OPENAI_ROUTES_PAGE_H_
#define TLM_CLIENT_OPENAI_ROUTES_PAGE_H_

#include <string>
#include <string_view>

#include "client/openai/routes/front.h"

namespace tlm::openai {

// Returns the page that the build embedded (client/openai/page/index.html); empty without one.
std::string_view EmbeddedPage();

// Returns the Content-Security-Policy of a page: only its own inline scripts and styles, by their
// hashes, and connections to its own server.
std::string SecurityPolicyOf(std::string_view page);

// GET /. 404 if no page is embedded.
void Page(Front* front, const Incoming& incoming);

// GET /page/model_info?model=NAME&prompt_tokens=N&output_tokens=N: ModelInfoResponse as Protobuf
// JSON. With prompt_tokens or output_tokens, `flops` counts that workload.
void PageModelInfo(Front* front, const Incoming& incoming);

// GET /page/status?model=NAME:
//
//   {"model": "demo",
//    "replicas": [{"serving": true, "running_requests": 1, "waiting_requests": 0,
//                  "kv_blocks_total": 64, "kv_blocks_free": 60, "kv_cache_usage": 0.0625,
//                  "utilization": 0.1}, {"serving": false, "error": "..."}],
//    "front": {"running_calls": 1, "queued_calls": 0, "tokens_per_second": 81.5}}
void PageStatus(Front* front, const Incoming& incoming);

}  // namespace tlm::openai

#endif  // TLM_CLIENT_OPENAI_ROUTES_PAGE_H_
