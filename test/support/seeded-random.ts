export { SeededRandom } from '../kit/seeded-random.ts'
