// The page's policy allows no inline script, so this stands in a file.
window.SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  presets: [window.SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
  // without it, Swagger UI shows the badge of a validator on another host
  validatorUrl: null,
});
