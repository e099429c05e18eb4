// The page's policy allows no inline script, so this stands in a file.
window.SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  presets: [window.SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
  // without it, Swagger UI shows the badge of a validator on another host
  validatorUrl: null,
  // the key that the page at / keeps in this tab
  requestInterceptor: (request) => {
    const key = sessionStorage.getItem("docsplit.key");
    if (key && new URL(request.url, location.href).origin === location.origin) {
      request.headers.authorization = `Bearer ${key}`;
    }
    return request;
  },
});
