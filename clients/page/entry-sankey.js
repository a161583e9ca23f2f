export { sankey, sankeyJustify } from "d3-sankey";
