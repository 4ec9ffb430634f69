import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

const root = fileURLToPath(new URL('..', import.meta.url))

/** The largest tier first: a long file that begins last keeps all but one worker waiting. */
const ORDER = ['system', 'integration', 'unit']

class LargestTierFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files)
    return ORDER.flatMap((tier) => sorted.filter(({ project }) => project.name === tier))
  }
}

/**
 * Run twice: in their own tier in short, in the system tier at the length
 * that the promise is made for (`test/support/run-length.ts`).
 */
const TWO_LENGTHS = ['room-model.test.ts', 'sync.test.ts', 'conformance.integration.test.ts']

const anywhere = (name: string) =>
  `{shared,control,dataplane,client,examples,deploy,loadtest,test}/**/${name}`

function tier(name: string, include: string[], { exclude = [] as string[], fullLength = false } = {}) {
  return {
    extends: true as const,
    root,
    test: {
      name,
      include: include.map(anywhere),
      exclude: exclude.map(anywhere),
      provide: { fullLength },
      // Unit tests share their workers: nothing has state in modules.
      isolate: name !== 'unit',
    },
  }
}

export default defineConfig({
  root,
  resolve: {
    alias: [
      { find: /^roomful$/, replacement: `${root}dataplane/index.ts` },
      { find: /^roomful\/client$/, replacement: `${root}client/index.ts` },
    ],
  },
  test: {
    // A file's name says its tier.
    projects: [
      tier('unit', ['*.test.ts'], { exclude: ['*.integration.test.ts', '*.system.test.ts'] }),
      tier('integration', ['*.integration.test.ts']),
      tier('system', ['*.system.test.ts', ...TWO_LENGTHS], { fullLength: true }),
    ],
    globalSetup: ['test/support/global-setup.ts'],
    // Longer than anything takes on a machine that is busy with other things: what must be quick is measured by the tests themselves.
    testTimeout: 180_000,
    hookTimeout: 240_000,
    expect: { poll: { timeout: 60_000 } },
    // One more than the cores of a small machine: those with processes of their own mostly wait.
    maxWorkers: 3,
    sequence: { sequencer: LargestTierFirst },
    coverage: {
      include: ['{shared,control,dataplane,client,examples,deploy,loadtest}/**/*.ts'],
      exclude: ['**/*.test.ts', '**/*suite.ts', '**/conformance.ts', '**/conformance/**'],
      reporter: ['text', 'text-summary'],
    },
  },
})
