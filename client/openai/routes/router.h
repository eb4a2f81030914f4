// The table of routes.
#ifndef TLM_CLIENT_OPENAI_ROUTES_ROUTER_H_
#define TLM_CLIENT_OPENAI_ROUTES_ROUTER_H_

#include <atomic>
#include <memory>

#include "client/openai/http/exchange.h"
#include "client/openai/http/http_server.h"
#include "client/openai/routes/front.h"

namespace tlm::openai {

// Thread-safe.
class Router {
 public:
  // `front` must outlive the router.
  explicit Router(Front* front) : front_(front) {}

  // Does not block. Answers the exchange, now or from another thread.
  void Handle(const HttpServer& server, std::shared_ptr<Exchange> exchange);

  // From now on /health answers 503.
  void SetDraining() { draining_ = true; }

 private:
  void Dispatch(const HttpServer& server, Incoming incoming);
  void Metrics(const HttpServer& server, const Incoming& incoming);
  void Query(Incoming incoming, void (*run)(Front* front, const Incoming& incoming));

  Front* const front_;
  std::atomic<bool> draining_{false};
};

}  // namespace tlm::openai

#endif  // TLM_CLIENT_OPENAI_ROUTES_ROUTER_H_
