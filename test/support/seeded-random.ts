export { SeededRandom } from '../../testkit/seeded-random.ts'
