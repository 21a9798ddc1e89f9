import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    typecheck: { enabled: true, include: ["test/**/*.test-d.ts"], tsconfig: "test/tsconfig.json" },
    // A bound on a hang; no test judges speed.
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
